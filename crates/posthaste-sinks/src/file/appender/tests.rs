use std::thread;

use super::*;

#[test]
fn lines_that_a_mover_reads_no_more_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    // So many that they are still being written when the file goes.
    let lines = [&[b'x'; 999], &b"\n"[..]].concat().repeat(50_000);
    let mut appender = Appender::open(&path, None).unwrap();
    for _ in 0..3 {
        let mover = thread::spawn({
            let path = path.clone();
            move || {
                while fs::metadata(&path).unwrap().len() == 0 {}
                let moved = path.with_extension("moved");
                fs::rename(&path, &moved).unwrap();
                let taken = fs::read(&moved).unwrap();
                fs::remove_file(&moved).unwrap();
                taken
            }
        });
        appender.append(&lines).unwrap();
        let taken = mover.join().unwrap();
        // A second time, where the mover came too late to miss any.
        let kept = fs::read(&path).unwrap_or_default();
        assert!(kept == lines || taken == lines, "{} bytes", taken.len());
        fs::remove_file(&path).unwrap_or_default();
        appender = Appender::open(&path, None).unwrap();
    }
}

#[test]
fn an_accepted_line_without_its_newline_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    for (found, kept) in [
        ("{\"seq\":1}\n{\"seq\":2}", "{\"seq\":1}\n{\"seq\":2}\n"),
        ("{\"seq\":1}\n{\"seq\":2}\0\0", "{\"seq\":1}\n{\"seq\":2}\n"),
        ("{\"seq\":1}\n\0\0\0", "{\"seq\":1}\n"),
        ("{\"seq\":1}\n{\"seq\":2\0", "{\"seq\":1}\n"),
    ] {
        fs::write(&path, found).unwrap();
        drop(Appender::open(&path, None).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), kept);
    }
}
