use std::{any::Any, fmt, sync::Arc};

/// How far a destination has come: opaque to the engine, which only carries it.
///
/// It is the store's own value (`base`) plus, inside a page, the `seq` of the last event that
/// counts as passed. `seq` is no total order outside that base.
#[derive(Clone)]
pub struct Cursor {
    base: Arc<dyn Any + Send + Sync>,
    seq: Option<i64>,
}

impl Cursor {
    /// Everything that `base` covers.
    #[must_use]
    pub fn whole(base: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, seq: None }
    }

    /// All that lies before `base`'s page, plus of the page everything up to `seq`.
    #[must_use]
    pub fn within(base: Arc<dyn Any + Send + Sync>, seq: i64) -> Self {
        Self {
            base,
            seq: Some(seq),
        }
    }

    /// The store's own value, if it is of the store's own type.
    #[must_use]
    pub fn base<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.base.downcast_ref()
    }

    /// Its place, and how far of it.
    #[cfg(feature = "model")]
    pub(crate) fn describe(&self, out: crate::model::Out<'_>) {
        use crate::model::Part;
        out(Part::Place(&*self.base));
        match self.seq {
            Some(seq) => out(Part::Seq(seq)),
            None => out(Part::Number(0)),
        }
    }

    /// Whether this is the very cursor that the other one was cloned from, or a clone of it.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.base, &other.base) && self.seq == other.seq
    }

    /// The last event of the page that counts as passed; none means the whole page and its end.
    #[must_use]
    pub fn seq(&self) -> Option<i64> {
        self.seq
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("seq", &self.seq)
            .finish_non_exhaustive()
    }
}
