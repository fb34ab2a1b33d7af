//! A subscriber that keeps what it hears.

#![allow(dead_code, unreachable_pub)]

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Registry,
    layer::{Context, Layer, SubscriberExt},
    registry::LookupSpan,
};

/// What was heard of one span.
#[derive(Clone, Debug)]
pub struct Span {
    pub id: u64,
    pub parent: Option<u64>,
    pub name: &'static str,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
    /// How often it was entered, and left.
    pub entered: usize,
    pub exited: usize,
    pub closed: bool,
}

impl Span {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

#[derive(Default)]
struct Records {
    spans: Vec<Span>,
    /// The text of each event, and the span it was in.
    events: Vec<(Option<u64>, String)>,
}

#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Records>>);

/// Records what happens on this thread until the guard is dropped.
pub fn record() -> (Heard, DefaultGuard) {
    record_up_to(Level::TRACE)
}

pub fn record_up_to(level: Level) -> (Heard, DefaultGuard) {
    let record = Heard::default();
    let filter = tracing_subscriber::filter::LevelFilter::from_level(level);
    let subscriber = Registry::default().with(record.clone().with_filter(filter));
    (record, tracing::subscriber::set_default(subscriber))
}

impl Heard {
    /// All spans of this crate so far, in the order in which they began.
    pub fn spans(&self) -> Vec<Span> {
        self.0.lock().spans.clone()
    }

    /// The only span so far.
    #[track_caller]
    pub fn only(&self) -> Span {
        let spans = self.spans();
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans.into_iter().next().expect("one")
    }

    pub fn events(&self) -> Vec<(Option<u64>, String)> {
        self.0.lock().events.clone()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Heard {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = context.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64()));
        let metadata = attributes.metadata();
        let (name, level) = (metadata.name(), *metadata.level());
        let span = Span {
            id: id.into_u64(),
            parent,
            name,
            level,
            fields: fields.0,
            entered: 0,
            exited: 0,
            closed: false,
        };
        self.0.lock().spans.push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.with(id, |span| span.fields.extend(fields.0));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = fields.0.into_values().collect::<Vec<_>>().join(" ");
        let span = context.event_span(event).map(|span| span.id().into_u64());
        self.0.lock().events.push((span, text));
    }

    fn on_enter(&self, id: &Id, _: Context<'_, S>) {
        self.with(id, |span| span.entered += 1);
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        self.with(id, |span| span.exited += 1);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.with(&id, |span| span.closed = true);
    }
}

impl Heard {
    fn with(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        // Ids come again, so the last one of this id is meant.
        if let Some(span) = self.0.lock().spans.iter_mut().rev().find(|span| span.id == id.into_u64()) {
            change(span);
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
