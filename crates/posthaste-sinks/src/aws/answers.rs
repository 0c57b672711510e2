//! The answers to the messages of a request, each under the name that it has in the request.

use uuid::Uuid;

use crate::requests::refusal::{Answer, Refusal};

/// The answers to the messages of one request. A proxy that is out of step gives the answer to
/// another one: their names are those of no other request, so that it says nothing of these.
pub(crate) struct Answers {
    pub(crate) all: Vec<Answer>,
    /// How the names of this request begin.
    request: String,
}

impl Answers {
    /// Nothing is said yet of so many messages.
    pub(crate) fn of(count: usize) -> Self {
        Self {
            all: vec![Err(Refusal::unanswered()); count],
            request: format!("{}-", Uuid::new_v4().simple()),
        }
    }

    /// The name of the message at this place.
    pub(crate) fn name(&self, at: usize) -> String {
        format!("{}{at}", self.request)
    }

    /// The place of the message with this name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let at = name.strip_prefix(&self.request)?.parse().ok()?;
        (at < self.all.len()).then_some(at)
    }

    /// The message at this place is stored.
    pub(crate) fn stored(&mut self, at: usize) {
        self.all[at] = Ok(());
    }

    /// The message of this name is not.
    pub(crate) fn failed(&mut self, name: &str, refusal: Refusal) {
        if let Some(at) = self.place(name) {
            self.all[at] = Err(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_another_request_says_nothing_of_this_one() {
        let (mut ours, other) = (Answers::of(2), Answers::of(2));
        for name in [other.name(0), "0".to_owned(), String::new(), ours.name(2)] {
            assert_eq!(ours.place(&name), None, "{name}");
            ours.failed(&name, Refusal::of_entry("InternalError", None, false));
        }
        assert_eq!(
            ours.all,
            [Err(Refusal::unanswered()), Err(Refusal::unanswered())]
        );
        let at = ours.place(&ours.name(1)).unwrap();
        ours.stored(at);
        assert_eq!(ours.all, [Err(Refusal::unanswered()), Ok(())]);
    }
}
