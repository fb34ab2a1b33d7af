//! The proxy of the fault tests does what it is told: otherwise those tests prove nothing.

mod support;

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use support::proxy::Proxy;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};

/// How a connection ended on the side of the server.
type Ends = mpsc::UnboundedReceiver<io::Result<()>>;

/// A server that sends everything back, and tells of the end of each connection.
async fn echo() -> (SocketAddr, Ends) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (tell, ends) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let (mut from, mut to) = socket.split();
                let end = tokio::io::copy(&mut from, &mut to).await;
                let _ = tell.send(end.map(drop));
            });
        }
    });
    (address, ends)
}

async fn connected(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).await.expect("the proxy accepts");
    assert_eq!(echoed(&mut client).await.expect("the proxy forwards"), *b"hello");
    client
}

async fn echoed(client: &mut TcpStream) -> io::Result<[u8; 5]> {
    let mut answer = [0; 5];
    client.write_all(b"hello").await?;
    client.read_exact(&mut answer).await?;
    Ok(answer)
}

async fn is_reset(client: &mut TcpStream) -> bool {
    client.read_u8().await.expect_err("nothing is sent").kind() == ErrorKind::ConnectionReset
}

/// Silence cannot be awaited, only lack of an answer for a while: an answer over loopback takes far less.
async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(100), echoed(client)).await.is_err()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted() {
    let (server, _ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client).await.expect("the proxy forwards"), *b"hello");
    drop((client, connected(&proxy).await));
    assert_eq!((proxy.to_server(), proxy.to_client()), (15, 15));
}

#[tokio::test]
async fn an_orderly_close_passes_through() {
    let (server, mut ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let mut client = connected(&proxy).await;
    client.shutdown().await.expect("open");
    assert_eq!(client.read(&mut [0]).await.expect("no reset"), 0);
    assert!(ends.recv().await.expect("an end").is_ok());
}

#[tokio::test]
async fn a_cut_resets_both_sides_and_lets_new_connections_through() {
    let (server, mut ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let (mut one, mut two) = (connected(&proxy).await, connected(&proxy).await);
    proxy.cut();
    assert!(is_reset(&mut one).await && is_reset(&mut two).await);
    for _ in 0..2 {
        let end = ends.recv().await.expect("an end");
        assert_eq!(end.expect_err("reset").kind(), ErrorKind::ConnectionReset);
    }
    connected(&proxy).await;
}

#[tokio::test]
async fn a_black_hole_keeps_connections_open_and_forwards_nothing() {
    let (server, mut ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let mut old = connected(&proxy).await;
    proxy.black_hole();
    assert!(is_silent(&mut old).await);
    let mut new = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert!(is_silent(&mut new).await);
    // Not even the end of the client reaches the server.
    drop(new);
    old.shutdown().await.expect("open");
    assert!(timeout(Duration::from_millis(100), ends.recv()).await.is_err());
    assert_eq!((proxy.to_server(), proxy.to_client()), (5, 5));
}

#[tokio::test]
async fn after_a_black_hole_only_new_connections_live() {
    let (server, _ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let mut before = connected(&proxy).await;
    proxy.black_hole();
    let mut during = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert!(is_silent(&mut during).await);
    proxy.heal().expect("the port");
    connected(&proxy).await;
    assert!(is_silent(&mut before).await && is_silent(&mut during).await);
    proxy.cut();
    assert!(is_reset(&mut before).await && is_reset(&mut during).await);
}

#[tokio::test]
async fn while_it_refuses_old_connections_go_on_and_new_ones_fail() {
    let (server, _ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let mut old = connected(&proxy).await;
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await.expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert!(echoed(&mut old).await.is_ok());
    proxy.heal().expect("the port");
    connected(&proxy).await;
}

#[tokio::test]
async fn without_a_server_a_client_is_reset() {
    let gone = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let proxy = Proxy::start(gone.local_addr().expect("an address")).expect("a proxy");
    drop(gone);
    let mut client = TcpStream::connect(proxy.address()).await.expect("accepted");
    assert!(is_reset(&mut client).await);
}

#[tokio::test]
async fn everything_ends_when_it_is_dropped() {
    let (server, mut ends) = echo().await;
    let proxy = Proxy::start(server).expect("a proxy");
    let address = proxy.address();
    let mut open = connected(&proxy).await;
    proxy.black_hole();
    let mut swallowed = TcpStream::connect(address).await.expect("accepted");
    assert!(is_silent(&mut swallowed).await);
    drop(proxy);
    assert!(is_reset(&mut open).await && is_reset(&mut swallowed).await);
    assert!(ends.recv().await.expect("an end").is_err());
    assert!(TcpStream::connect(address).await.is_err());
}
