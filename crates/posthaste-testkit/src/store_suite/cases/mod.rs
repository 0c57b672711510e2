//! The cases, as data.

mod admin;
mod audit;
mod claims;
mod evacuation;
mod faults;
mod handed_out;
mod leaving;
mod moving;
mod ordering;
mod paging;
mod parking;
mod paused_places;
mod reports;
mod retention;
mod schema;
mod sharing;
mod side;
mod undo;
mod writing;

use std::{future::Future, pin::Pin};

use super::{Capability, bench::Bench};

type Run = Box<dyn FnOnce(Bench) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Capability],
    pub(super) run: Run,
}

fn case<F>(name: &'static str, run: fn(Bench) -> F) -> Case
where
    F: Future<Output = ()> + Send + 'static,
{
    Case {
        name,
        needs: &[],
        run: Box::new(move |bench| Box::pin(run(bench))),
    }
}

impl Case {
    fn needs(mut self, needs: &'static [Capability]) -> Self {
        self.needs = needs;
        self
    }
}

/// Names the case after its function.
macro_rules! cases {
    ($($name:ident $(needs $need:ident)*),* $(,)?) => {
        vec![$(crate::store_suite::cases::case(stringify!($name), $name)
            .needs(&[$(crate::store_suite::Capability::$need),*])),*]
    };
}
use cases;

/// Every case, in the order in which they are listed.
pub(super) fn all() -> Vec<Case> {
    [
        writing::cases(),
        paging::cases(),
        handed_out::cases(),
        claims::cases(),
        sharing::cases(),
        leaving::cases(),
        moving::cases(),
        parking::cases(),
        side::cases(),
        undo::cases(),
        admin::cases(),
        reports::cases(),
        paused_places::cases(),
        audit::cases(),
        retention::cases(),
        evacuation::cases(),
        ordering::cases(),
        faults::cases(),
        schema::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
