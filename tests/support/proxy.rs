//! A TCP proxy that breaks connections the way networks do.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as Listener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Stands between clients and a server, and does to their connections what it is told. Dropping it resets all of them
/// and frees the port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    server: SocketAddr,
    // Connections watch it, and end when it is dropped.
    network: watch::Sender<Network>,
    bytes: Arc<Bytes>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// What has happened to the network. A connection compares it with what it was when the connection began.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    cuts: u64,
    black_holes: u64,
    swallows: bool,
}

#[derive(Debug, Default)]
struct Bytes {
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Proxy {
    /// Listens on a free port of the loopback interface and forwards to `server`, which need not be up yet.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Self {
            address: listener.local_addr()?,
            server,
            network: watch::Sender::default(),
            bytes: Arc::default(),
            accepting: Mutex::default(),
        };
        proxy.accept_from(listener)?;
        Ok(proxy)
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets every accepted connection. New ones are forwarded.
    pub fn cut(&self) {
        self.network.send_modify(|network| network.cuts += 1);
    }

    /// Forwards nothing any more, in either direction. Connections stay open and new ones are accepted, but what is
    /// sent into them arrives nowhere, and nobody is told.
    pub fn black_hole(&self) {
        self.network.send_modify(|network| {
            network.black_holes += 1;
            network.swallows = true;
        });
    }

    /// Refuses new connections, from when it returns. Those that are open go on.
    pub async fn refuse(&self) {
        let accepting = self.accepting.lock().take();
        if let Some(accepting) = accepting {
            accepting.abort();
            // The listener is closed when the task has ended, as the error says that it has.
            let _ = accepting.await;
        }
    }

    /// Accepts and forwards new connections again. Those that fell into a black hole stay dead.
    pub fn heal(&self) -> io::Result<()> {
        self.network.send_modify(|network| network.swallows = false);
        if self.accepting.lock().is_some() {
            return Ok(());
        }
        self.accept_from(Listener::bind(self.address)?)
    }

    /// How many bytes went from clients to the server.
    pub fn to_server(&self) -> u64 {
        self.bytes.to_server.load(Ordering::Relaxed)
    }

    /// How many bytes went from the server to clients.
    pub fn to_client(&self) -> u64 {
        self.bytes.to_client.load(Ordering::Relaxed)
    }

    fn accept_from(&self, listener: Listener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let (network, bytes, server) = (self.network.subscribe(), self.bytes.clone(), self.server);
        let accepting = tokio::spawn(async move {
            // An error belongs to a client that was gone before it was accepted.
            loop {
                if let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(connection(client, server, network.clone(), bytes.clone()));
                }
            }
        });
        *self.accepting.lock() = Some(accepting);
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.get_mut() {
            accepting.abort();
        }
    }
}

async fn connection(
    mut client: TcpStream,
    server: SocketAddr,
    network: watch::Receiver<Network>,
    bytes: Arc<Bytes>,
) {
    let began = *network.borrow();
    let cut = until(&network, move |now| now.cuts != began.cuts);
    let swallowed = until(&network, move |now| now.swallows || now.black_holes != began.black_holes);
    tokio::pin!(cut);

    // Both sockets live out here, so that neither is closed when forwarding ends at a black hole.
    let mut upstream = None;
    let forwarded = tokio::select! {
        biased;
        () = &mut cut => None,
        () = swallowed => {
            cut.await;
            None
        }
        forwarded = forward(&mut client, &mut upstream, server, &bytes) => forwarded.ok(),
    };
    // Whatever is not an orderly end of both directions is a reset of both.
    if forwarded.is_none() {
        for socket in [Some(client), upstream].into_iter().flatten() {
            let _ = socket.set_zero_linger();
        }
    }
}

/// Ends when the network is as told, or the proxy is gone.
fn until(network: &watch::Receiver<Network>, told: impl Fn(&Network) -> bool) -> impl Future<Output = ()> {
    let mut network = network.clone();
    async move {
        let _ = network.wait_for(told).await;
    }
}

async fn forward(
    client: &mut TcpStream,
    upstream: &mut Option<TcpStream>,
    server: SocketAddr,
    bytes: &Bytes,
) -> io::Result<()> {
    let (from_server, to_server) = upstream.insert(TcpStream::connect(server).await?).split();
    let (from_client, to_client) = client.split();
    tokio::try_join!(
        pipe(from_client, to_server, &bytes.to_server),
        pipe(from_server, to_client, &bytes.to_client),
    )?;
    Ok(())
}

/// Carries bytes one way until that way is closed, and closes it on the other side.
async fn pipe(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}
