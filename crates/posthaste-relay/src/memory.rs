//! A store and a sink in memory: the reference models, held to the same conformance suites as the
//! real ones, and handy in an application's own tests.

mod sink;
mod store;

#[doc(inline)]
pub use posthaste_engine::memory_tables::NewEvent;
pub use sink::{MemorySink, MemorySinkFault};
pub use store::{MemoryMode, MemoryStore, MemoryTransaction};
