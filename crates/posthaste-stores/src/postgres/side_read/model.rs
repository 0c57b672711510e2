//! Tells states of a side read apart.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    super::{
        model::{Number, Out},
        position::Position,
    },
    Pass, Reached, SideCourse, SidePlace, Starts, Stretch,
};

fn describe_key(key: &str, out: Out<'_>) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    out(Number::Plain(hasher.finish()));
}

fn describe_keys<'a>(keys: impl ExactSizeIterator<Item = &'a String>, out: Out<'_>) {
    out(Number::Plain(keys.len() as u64));
    keys.for_each(|key| describe_key(key, out));
}

fn describe_starts(starts: &Starts, out: Out<'_>) {
    let mut starts: Vec<(&String, &Position)> = starts.iter().collect();
    starts.sort_by_key(|(key, _)| *key);
    out(Number::Plain(starts.len() as u64));
    for (key, start) in starts {
        describe_key(key, out);
        start.describe(out);
    }
}

fn describe_seq(seq: Option<i64>, out: Out<'_>) {
    out(Number::Plain(seq.is_some().into()));
    seq.into_iter().for_each(|seq| out(Number::Seq(seq)));
}

impl Stretch {
    fn describe(&self, out: Out<'_>) {
        let (starts, from, to) = match self {
            Self::Rests(starts) => (starts, None, None),
            Self::Whole { starts, from, to } => (starts, from.as_ref(), Some(to)),
        };
        describe_starts(starts, out);
        for place in [from, to] {
            out(Number::Plain(place.is_some().into()));
            if let Some(place) = place {
                place.describe(out);
            }
        }
    }
}

impl SidePlace {
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        self.stretch.describe(out);
        // Before all of it there is no row.
        describe_seq(self.last.map(|last| last.max(-1)), out);
    }
}

impl SideCourse {
    /// Tells it from others.
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        describe_keys(self.keys.iter(), out);
        describe_starts(&self.starts, out);
        match &self.reached {
            Reached::Starts => out(Number::Plain(0)),
            Reached::Rests => out(Number::Plain(1)),
            Reached::Whole(at) => {
                out(Number::Plain(2));
                at.describe(out);
            }
        }
        out(Number::Plain(self.pass.is_some().into()));
        if let Some(Pass { stretch, last, end }) = &self.pass {
            stretch.describe(out);
            out(Number::Seq(*last));
            describe_seq(*end, out);
        }
        self.stands.describe(out);
        describe_keys(self.touched.iter(), out);
        let end = self.end.as_ref().and_then(|end| end.base::<SidePlace>());
        out(Number::Plain(end.is_some().into()));
        if let Some(end) = end {
            end.describe(out);
        }
    }
}
