//! Tells states of a sweep apart.

use super::{
    super::model::{Number, Out},
    End, Place, Position, Snapshot, Sweep,
};

impl Snapshot {
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        out(Number::Xmax(self.xmax()));
        out(Number::Plain(self.xip().len() as u64));
        self.xip().iter().for_each(|&xid| out(Number::Xid(xid)));
    }
}

impl Position {
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        self.low.describe(out);
        out(Number::Plain(self.within.is_some().into()));
        if let Some((high, seq)) = &self.within {
            high.describe(out);
            out(Number::Seq(*seq));
        }
        out(Number::Seq(self.floors.floor));
        out(Number::Seq(self.floors.floor_min));
    }
}

impl Place {
    /// All but the groups that it stands among.
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        out(Number::Read(self.read));
        self.low.describe(out);
        self.high.describe(out);
        let floors = match self.end {
            End::Within(last) => {
                out(Number::Plain(1));
                out(Number::Seq(last));
                self.floors
            }
            End::Whole(at_end) => {
                out(Number::Plain(0));
                out(Number::Seq(at_end.floor));
                out(Number::Seq(at_end.floor_min));
                self.floors
            }
        };
        out(Number::Seq(floors.floor));
        out(Number::Seq(floors.floor_min));
    }
}

impl Sweep {
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        out(Number::Read(self.reads));
        self.low.describe(out);
        out(Number::Plain(self.stragglers.len() as u64));
        for (&xid, &floor) in &self.stragglers {
            out(Number::Xid(xid));
            out(Number::Seq(floor));
        }
        out(Number::Plain(self.difference.is_some().into()));
        if let Some(difference) = &self.difference {
            difference.high.describe(out);
            out(Number::Seq(difference.owned));
            out(Number::Seq(difference.last));
            out(Number::Plain(difference.end.is_some().into()));
            out(Number::Seq(difference.end.unwrap_or(difference.last)));
        }
        let Sweep {
            floor,
            received,
            proven,
            stored,
            stored_ordinal,
            ..
        } = self;
        for seq in [*floor, *received, *proven, stored.floor, stored.floor_min] {
            out(Number::Seq(seq));
        }
        out(Number::Read(stored_ordinal.0));
        // Behind a whole page there is no row.
        out(Number::Seq(if stored_ordinal.1 == i64::MAX {
            -1
        } else {
            stored_ordinal.1
        }));
    }
}

impl super::Advance {
    pub(in super::super) fn describe(&self, out: Out<'_>) {
        self.position.describe(out);
        out(Number::Read(self.ordinal.0));
        out(Number::Seq(self.proves));
    }
}
