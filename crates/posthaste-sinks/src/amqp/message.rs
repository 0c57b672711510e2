//! The contract of a message.

/// A message to be published.
pub(crate) trait Message: Send {
    /// Why it does not fit into AMQP 0-9-1.
    type Refusal;

    /// Appends `basic.publish` and the content header. `frame_max`: bytes of a frame's payload at
    /// the most.
    ///
    /// # Errors
    /// When the message does not fit. The caller cuts off the appended bytes.
    fn write_start(
        &self,
        out: &mut Vec<u8>,
        exchange: &str,
        frame_max: usize,
    ) -> Result<(), Self::Refusal>;

    /// Whether this is its message id.
    fn has_id(&self, id: &str) -> bool;

    /// Its routing key.
    fn routing_key(&self) -> &str;

    /// Its body.
    fn body(&self) -> &[u8];
}
