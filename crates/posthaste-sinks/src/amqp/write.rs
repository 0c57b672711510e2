//! AMQP 0-9-1 on the wire, as far as a publisher needs it: our frames.

use super::wire::{BASIC, BODY, CHANNEL, CONNECTION, FRAME_END, HEADER, HEARTBEAT, METHOD};

/// A string of more than 255 bytes where the protocol has room for no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Appends frames to a buffer.
pub(crate) struct FrameWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(super) fn start_ok(&mut self, user: &str, password: &str, name: &str) {
        self.method(CONNECTION, 10, 11, |w| {
            w.table(|w| {
                w.table_text("product", "Posthaste");
                w.table_text("version", env!("CARGO_PKG_VERSION"));
                w.table_text("platform", "Rust");
                w.table_text("connection_name", name);
                w.table_name("capabilities", b'F');
                w.table(|w| {
                    // Without these the broker neither says that it blocks publishers, nor why it
                    // refuses a login.
                    for capability in [
                        "publisher_confirms",
                        "connection.blocked",
                        "authentication_failure_close",
                        "basic.nack",
                    ] {
                        w.table_name(capability, b't');
                        w.u8(1);
                    }
                });
            });
            w.literal("PLAIN");
            w.long(&[b"\0", user.as_bytes(), b"\0", password.as_bytes()]);
            w.literal("en_US");
        });
    }

    pub(super) fn tune_ok(&mut self, frame_max: u32, heartbeat: u16) {
        self.method(CONNECTION, 10, 31, |w| {
            w.u16(CHANNEL);
            w.u32(frame_max);
            w.u16(heartbeat);
        });
    }

    pub(super) fn open(&mut self, vhost: &str) -> Result<(), TooLong> {
        self.try_method(CONNECTION, 10, 40, |w| {
            w.short(vhost)?;
            w.literal("");
            w.u8(0);
            Ok(())
        })
    }

    pub(super) fn connection_close(&mut self) {
        self.method(CONNECTION, 10, 50, |w| {
            w.u16(200);
            w.literal("done");
            w.u16(0);
            w.u16(0);
        });
    }

    pub(super) fn channel_open(&mut self) {
        self.method(CHANNEL, 20, 10, |w| w.literal(""));
    }

    pub(super) fn exchange_declare_passive(&mut self, exchange: &str) -> Result<(), TooLong> {
        self.try_method(CHANNEL, 40, 10, |w| {
            w.u16(0);
            w.short(exchange)?;
            w.literal("");
            w.u8(1);
            w.table(|_| {});
            Ok(())
        })
    }

    pub(super) fn confirm_select(&mut self) {
        self.method(CHANNEL, 85, 10, |w| w.u8(0));
    }

    /// `basic.publish`, mandatory.
    pub(crate) fn publish(&mut self, exchange: &str, routing_key: &str) -> Result<(), TooLong> {
        self.try_method(CHANNEL, BASIC, 40, |w| {
            w.u16(0);
            w.short(exchange)?;
            w.short(routing_key)?;
            w.u8(1);
            Ok(())
        })
    }

    /// The content header of a message of `size` bytes. `flags` and what `properties` writes must
    /// agree.
    pub(crate) fn content_header<E>(
        &mut self,
        size: u64,
        flags: u16,
        properties: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.frame(HEADER, CHANNEL, |w| {
            w.u16(BASIC);
            w.u16(0);
            w.u64(size);
            w.u16(flags);
            properties(w)
        })
    }

    pub(super) fn body(&mut self, bytes: &[u8]) {
        let Ok(()) = self.frame(BODY, CHANNEL, |w| {
            w.bytes(bytes);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn heartbeat(&mut self) {
        let Ok(()) = self.frame(HEARTBEAT, CONNECTION, |_| {
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn method(&mut self, channel: u16, class: u16, id: u16, arguments: impl FnOnce(&mut Self)) {
        let Ok(()) = self.frame(METHOD, channel, |w| {
            w.u16(class);
            w.u16(id);
            arguments(w);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn try_method(
        &mut self,
        channel: u16,
        class: u16,
        id: u16,
        arguments: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        self.frame(METHOD, channel, |w| {
            w.u16(class);
            w.u16(id);
            arguments(w)
        })
    }

    /// On failure the buffer holds half a frame: the caller cuts it off.
    fn frame<E>(
        &mut self,
        kind: u8,
        channel: u16,
        payload: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.u8(kind);
        self.u16(channel);
        self.sized(payload)?;
        self.u8(FRAME_END);
        Ok(())
    }

    /// Four bytes of length, then what it counts.
    fn sized<E>(&mut self, content: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let at = self.out.len();
        self.u32(0);
        content(self)?;
        // Nothing here comes near 4 GiB: bodies are cut into frames, headers refused when too long.
        let length = u32::try_from(self.out.len() - at - 4).unwrap_or(u32::MAX);
        self.out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    pub(crate) fn table(&mut self, fields: impl FnOnce(&mut Self)) {
        let Ok(()) = self.sized(|w| {
            fields(w);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(crate) fn try_table(
        &mut self,
        fields: impl FnOnce(&mut Self) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        self.sized(fields)
    }

    /// `name` is one of ours and short.
    fn table_name(&mut self, name: &'static str, kind: u8) {
        self.literal(name);
        self.u8(kind);
    }

    fn table_text(&mut self, name: &'static str, text: &str) {
        self.table_name(name, b'S');
        self.long(&[text.as_bytes()]);
    }

    /// A short string of ours.
    fn literal(&mut self, text: &'static str) {
        debug_assert!(text.len() <= 255);
        self.u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.bytes(text.as_bytes());
    }

    pub(crate) fn short(&mut self, text: &str) -> Result<(), TooLong> {
        self.u8(u8::try_from(text.len()).map_err(|_| TooLong)?);
        self.bytes(text.as_bytes());
        Ok(())
    }

    /// A long string of these parts.
    pub(crate) fn long(&mut self, parts: &[&[u8]]) {
        let Ok(()) = self.sized(|w| {
            for part in parts {
                w.bytes(part);
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}
