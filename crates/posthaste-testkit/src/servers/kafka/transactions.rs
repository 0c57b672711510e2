//! Transactions that are being ended: a request of Kafka's protocol that the client library lacks.

use super::KafkaServer;
use super::waiting::until;

const LIST_TRANSACTIONS: i16 = 66;
const VERSION: i16 = 0;

impl KafkaServer {
    /// Waits until every decided transaction is visible to consumers that read what is committed: a
    /// commit is answered before its marks stand in the partitions. Open transactions are left
    /// alone.
    ///
    /// # Panics
    ///
    /// When the broker does not answer, or does not finish within a minute.
    pub fn settle_transactions(&self) {
        until("no transaction is being ended", || !self.is_ending_some());
    }

    fn is_ending_some(&self) -> bool {
        let mut body = vec![0]; // No tagged fields in the head.
        // Lengths in this encoding are one more than they are, zero stands for none.
        body.push(3);
        for state in ["PrepareCommit", "PrepareAbort"] {
            body.push(u8::try_from(state.len() + 1).expect("a short text"));
            body.extend_from_slice(state.as_bytes());
        }
        body.extend_from_slice(&[1, 0]); // Of any producer; no tagged fields.
        let answer = self.exchange(LIST_TRANSACTIONS, VERSION, &body);
        // Correlation, tagged fields, throttle time; then error, unknown states, transactions.
        let rest = answer.get(4 + 1 + 4..).expect("an answer");
        let (error, rest) = rest.split_at(2);
        assert_eq!(error, [0, 0], "Kafka refused to list transactions");
        let [1, transactions, ..] = rest else {
            panic!("Kafka knows its states by other names: {rest:?}");
        };
        *transactions > 1
    }
}
