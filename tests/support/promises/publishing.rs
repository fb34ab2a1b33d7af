//! Where dead letters go: a publisher that has its moods.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::sleep;
use tower::{Service, ServiceExt, util::BoxCloneService};
use tower_mq::{BoxError, NotStored, Publication, Receipt};

use super::{Seen, Taken, UNREADABLE, World};

/// Stores the dead letters, and is not always able to.
#[derive(Clone)]
pub struct Letters {
    publisher: BoxCloneService<Publication, Receipt, BoxError>,
    world: World,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Store,
    Refuse,
    /// An error, a silence or a panic, after it was stored or not.
    Unsure {
        stored: bool,
        how: u8,
    },
}

impl Letters {
    pub fn new<P>(publisher: P, world: &World) -> Self
    where
        P: Service<Publication, Response = Receipt> + Clone + Send + 'static,
        P::Error: Into<BoxError>,
        P::Future: Send,
    {
        Self { publisher: publisher.map_err(Into::into).boxed_clone(), world: world.clone() }
    }
}

impl Service<Publication> for Letters {
    type Response = Receipt;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Receipt, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.world.lock().one_in(16) {
            true => Poll::Ready(Err("the publisher is not ready".into())),
            false => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, copy: Publication) -> Self::Future {
        let (publisher, world) = (self.publisher.clone(), self.world.clone());
        Box::pin(async move {
            let (mood, delay) = world.lock().mood();
            sleep(delay).await;
            let (n, delivery) = world.lock().copied(&copy, mood);
            if let Mood::Refuse = mood {
                return Err(NotStored.into());
            }
            let receipt = match mood {
                Mood::Unsure { stored: false, .. } => None,
                _ => Some(publisher.oneshot(copy).await?),
            };
            if receipt.is_some() {
                let mut seen = world.lock();
                seen.letters[n].copies += 1;
                seen.deliveries[delivery].copies += 1;
                seen.copies(delivery);
            }
            match (mood, receipt) {
                (Mood::Unsure { how: 0, .. }, _) => Err("did it arrive?".into()),
                (Mood::Unsure { how: 1, .. }, _) => world.panics(),
                (Mood::Store, Some(receipt)) => {
                    world.lock().deliveries[delivery].unsure -= 1;
                    Ok(receipt)
                }
                _ => std::future::pending().await,
            }
        })
    }
}

impl Seen {
    fn mood(&mut self) -> (Mood, Duration) {
        let mood = match self.random.u8(0..10) {
            _ if self.calm => Mood::Store,
            0 => Mood::Refuse,
            1..4 => Mood::Unsure { stored: self.random.bool(), how: self.random.u8(0..3) },
            _ => Mood::Store,
        };
        self.cover(match mood {
            Mood::Store => "copy",
            Mood::Refuse => "copy refused",
            Mood::Unsure { .. } => "copy unsure",
        });
        (mood, Duration::from_millis(self.random.u64(0..20)))
    }

    /// A copy is published: of the message, and only if that was not handled.
    fn copied(&mut self, copy: &Publication, mood: Mood) -> (usize, usize) {
        let n = Self::number(&copy.message);
        self.note(|| format!("copy of {n}: {mood:?}"));
        let delivery = self.delivery_of(&copy.message).expect("a copy is of a delivery");
        if copy.message.payload() != &self.letters[n].payload {
            self.broke(format!("promise 3: the copy of message {n} is not its copy"));
        }
        if &self.letters[n].payload[..] == UNREADABLE {
            self.cover("unreadable");
        }
        if self.deliveries[delivery].succeeded {
            self.broke(format!("promise 3: message {n} is copied and was handled, delivery {delivery}"));
        }
        // Until it is confirmed.
        if !matches!(mood, Mood::Refuse) {
            self.deliveries[delivery].unsure += 1;
        }
        (n, delivery)
    }

    /// One copy of a delivery, and one more if nobody could know of the first.
    fn copies(&mut self, delivery: usize) {
        let Taken { copies, unsure, .. } = self.deliveries[delivery];
        let before = unsure - 1;
        if copies > 1 {
            self.cover("two copies");
        }
        if copies > 1 + before.min(1) {
            self.broke(format!(
                "promise 3: {copies} copies of delivery {delivery}, and {before} were unsure"
            ));
        }
    }
}
