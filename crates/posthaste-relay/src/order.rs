/// An order to the tasks of all destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    Stop,
}
