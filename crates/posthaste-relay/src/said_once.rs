use std::time::Duration;

use posthaste_engine::Moment;
use tracing::warn;

/// A store or broker that is away is spoken of this often.
pub(crate) const SAY_EVERY: Duration = Duration::from_secs(10);

/// Says a thing at once, and again only every ten seconds while it lasts.
#[derive(Debug, Default)]
pub(crate) struct SaidOnce {
    next: Option<Moment>,
}

impl SaidOnce {
    /// Answers whether it was said.
    pub(crate) fn warn(&mut self, now: Moment, message: impl FnOnce() -> String) -> bool {
        let due = self.next.is_none_or(|next| next <= now);
        if due {
            warn!("{}", message());
            self.next = Some(now.after(SAY_EVERY));
        }
        due
    }
}
