//! Bytes from outside: frames of a peer.

use bolero::check;
use posthaste_testkit::fuzz::iterations;

use super::frame;

/// Bytes of any kind are read alike however they are cut, and none of them makes us take room for
/// more than they are.
#[test]
fn fuzz_frames() {
    check!()
        .with_iterations(iterations(2_000))
        .with_max_len(80)
        .for_each(|input: &[u8]| {
            read_in_pieces(input);
            let size = u8::try_from(input.len() + 11).unwrap();
            for code in [0x10, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18, 0x40, 0x44] {
                let head = [0, 0, 0, size, 2, 0, 0, 0, 0, 0x53, code];
                read_in_pieces(&[&head, input].concat());
            }
        });
}

fn read_in_pieces(input: &[u8]) {
    let whole = frame::read(input);
    if let Ok(Some((_, length))) = &whole {
        assert!((8..=input.len()).contains(length));
    }
    for end in 1..input.len() {
        match (frame::read(&input[..end]), &whole) {
            (Ok(None), _) => {}
            (early, whole) => assert_eq!(&early, whole, "after {end} of {input:?}"),
        }
    }
}
