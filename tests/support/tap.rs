//! Reads along between a source and RabbitMQ: what was delivered, what was acked, and what of that the broker has
//! shown to know.

#![allow(dead_code, unreachable_pub)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

/// Forwards to the broker, and keeps a record of every connection.
pub struct Tap {
    pub address: SocketAddr,
    lives: Arc<Mutex<Vec<Arc<Mutex<Life>>>>>,
}

/// What went over one connection.
#[derive(Default)]
pub struct Life {
    delivered: BTreeMap<u64, u32>,
    acks: Vec<Ack>,
}

struct Ack {
    tag: u64,
    multiple: bool,
    at: Instant,
}

impl Life {
    /// The orders that were delivered.
    pub fn delivered(&self) -> BTreeSet<u32> {
        self.delivered.values().copied().collect()
    }

    /// The orders whose ack the broker has provably processed.
    ///
    /// It never lets more than the window be unsettled. So when it delivers tag `t`, it has processed `t` minus the
    /// window settlements; and as it processes them in order, those are the first that were sent.
    pub fn proven(&self, window: u64) -> BTreeSet<u32> {
        let last = self.delivered.keys().next_back().copied().unwrap_or(0);
        let (mut processed, mut proven) = (0, BTreeSet::new());
        for (_, orders) in self.settled() {
            if processed + window >= last {
                break;
            }
            processed += orders.len() as u64;
            proven.extend(orders);
        }
        proven
    }

    /// How long before the end of the connection the first of these orders was acked.
    pub fn acked_before_the_end(&self, of: &BTreeSet<u32>) -> Option<Duration> {
        let last = self.acks.last()?.at;
        let settled = self.settled();
        let first = settled.into_iter().find(|(_, orders)| orders.iter().any(|order| of.contains(order)));
        first.map(|(at, _)| last - at)
    }

    /// What each frame acked, in the order sent.
    fn settled(&self) -> Vec<(Instant, Vec<u32>)> {
        let mut unsettled = self.delivered.clone();
        let frames = self.acks.iter().map(|Ack { tag, multiple, at }| {
            let tags: Vec<u64> = match multiple {
                true => unsettled.range(..=tag).map(|(tag, _)| *tag).collect(),
                false => vec![*tag],
            };
            (*at, tags.into_iter().filter_map(|tag| unsettled.remove(&tag)).collect())
        });
        frames.collect()
    }

    /// How many frames acked how many deliveries.
    pub fn acks(&self) -> usize {
        self.acks.len()
    }
}

impl Tap {
    pub async fn start(broker: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, lives) = (listener.local_addr()?, Arc::new(Mutex::new(Vec::new())));
        let record = lives.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let life = Arc::new(Mutex::new(Life::default()));
                record.lock().push(life.clone());
                tokio::spawn(async move {
                    let Ok(broker) = TcpStream::connect(broker).await else { return };
                    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
                    let ((from_client, to_client), (from_broker, to_broker)) =
                        (client.into_split(), broker.into_split());
                    let mut acks = Frames::after_greeting();
                    let mut deliveries = Frames::default();
                    let (hears, tells) = (life.clone(), life);
                    // When one way ends, so does the other: nobody here closes only half.
                    tokio::select! {
                        () = pipe(from_client, to_broker, |bytes| acks.read(bytes, &hears)) => {}
                        () = pipe(from_broker, to_client, |bytes| deliveries.read(bytes, &tells)) => {}
                    }
                });
            }
        });
        Ok(Self { address, lives })
    }

    /// Calls `look` with all connections so far, in their order.
    pub fn lives<T>(&self, look: impl FnOnce(&[&Life]) -> T) -> T {
        let lives = self.lives.lock();
        let guards: Vec<_> = lives.iter().map(|life| life.lock()).collect();
        look(&guards.iter().map(|guard| &**guard).collect::<Vec<_>>())
    }
}

async fn pipe(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut heard: impl FnMut(&[u8]),
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        heard(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Cuts a stream of bytes into the frames of AMQP 0.9.1.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    skip: usize,
    /// The delivery whose payload is to come.
    tag: Option<u64>,
}

impl Frames {
    /// A client greets before its first frame.
    fn after_greeting() -> Self {
        Self { skip: 8, ..Self::default() }
    }

    fn read(&mut self, bytes: &[u8], life: &Mutex<Life>) {
        self.bytes.extend_from_slice(bytes);
        let mut start = self.skip;
        while let Some(head) = self.bytes.get(start..start + 7) {
            let (kind, size) = (head[0], u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize);
            let Some(payload) = self.bytes.get(start + 7..start + 7 + size) else { break };
            if self.bytes.len() < start + 8 + size {
                break;
            }
            match (kind, payload) {
                // basic.deliver: consumer tag, delivery tag
                (1, [0, 60, 0, 60, rest @ ..]) => self.tag = rest.get(1 + usize::from(rest[0])..).map(number),
                // basic.ack: delivery tag, multiple
                (1, [0, 60, 0, 80, rest @ ..]) => {
                    let ack = Ack { tag: number(rest), multiple: rest[8] & 1 == 1, at: Instant::now() };
                    life.lock().acks.push(ack);
                }
                (3, payload) => {
                    if let (Some(tag), Ok(order)) = (self.tag.take(), payload.try_into()) {
                        life.lock().delivered.insert(tag, u32::from_be_bytes(order));
                    }
                }
                _ => {}
            }
            start += 8 + size;
        }
        if start <= self.bytes.len() {
            self.bytes.drain(..start);
            self.skip = 0;
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    u64::from_be_bytes(number)
}
