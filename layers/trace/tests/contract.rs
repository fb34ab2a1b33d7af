//! The layer keeps Tower's contract when somebody listens.

mod record;

use tower_mq_delivery::{Delivery, Message, Publication};
use tower_mq_testing::contract;
use tower_mq_trace::TraceLayer;

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract_when_somebody_listens() {
    let (heard, _guard) = record::record();
    contract::check::<Message, _>(TraceLayer::new()).await;
    contract::check::<Delivery, _>(TraceLayer::new().continue_trace()).await;
    contract::check::<Publication, _>(TraceLayer::publisher()).await;
    let spans = heard.spans();
    assert!(!spans.is_empty());
    for span in spans {
        assert!(span.closed && span.entered == span.exited, "{span:?}");
    }
}
