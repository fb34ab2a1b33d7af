//! What the compiler says to those who compose a stack wrongly: one sentence about the mistake, and little more.
//!
//! The texts were written by one version of the compiler, and are compared with no other. After a change that is meant,
//! write them anew: `TRYBUILD=overwrite cargo test --features full --test ui`.

use std::{fs, path::PathBuf, process::Command};

/// The compiler that wrote the texts.
const RUSTC: &str = "rustc 1.95.";

/// A mistake, and how many errors and lines of text it may cost its author.
const MISTAKES: [(&str, usize, usize); 21] = [
    ("batch_and_more", 2, 44),
    ("batch_layer_extra", 1, 17),
    ("batch_layer_missing", 1, 17),
    ("closure_untyped", 4, 77),
    ("error_not_error", 2, 62),
    ("future_not_send", 2, 47),
    ("json_not_deserialize", 1, 27),
    ("lane_key_borrowed", 1, 9),
    ("nine_arguments", 2, 47),
    ("not_async", 2, 47),
    ("not_extractor", 2, 44),
    ("option_layer_raw", 2, 27),
    ("partition_in_batch", 1, 22),
    ("partition_not_clone", 1, 22),
    ("plain_stream", 1, 36),
    ("publisher_wrong", 1, 13),
    ("request_replaced", 2, 50),
    ("retry_outside_settle", 2, 39),
    ("returns_number", 2, 59),
    ("returns_result_number", 2, 59),
    ("settle_missing", 3, 50),
];

fn file(mistake: &str, extension: &str) -> PathBuf {
    PathBuf::from("tests/ui").join(mistake).with_extension(extension)
}

#[test]
fn each_mistake_is_told_in_the_words_that_were_written_down() {
    let version = Command::new("rustc").arg("--version").output().expect("there is a compiler").stdout;
    let version = String::from_utf8_lossy(&version);
    if !version.starts_with(RUSTC) {
        eprintln!("skipped: the texts are those of {RUSTC}x, and this is {version}");
        return;
    }
    if cfg!(not(feature = "json")) {
        eprintln!("skipped: the texts are those of the feature `json`");
        return;
    }
    let cases = trybuild::TestCases::new();
    for (mistake, ..) in MISTAKES {
        cases.compile_fail(file(mistake, "rs"));
    }
}

#[test]
fn each_mistake_is_told_in_few_words() {
    let mut too_long = Vec::new();
    for (mistake, most_errors, most_lines) in MISTAKES {
        let text = fs::read_to_string(file(mistake, "stderr")).expect("the text was written down");
        let errors = text.lines().filter(|line| line.starts_with("error")).count();
        let lines = text.lines().count();
        if errors > most_errors || lines > most_lines {
            too_long.push(format!(
                "{mistake}: {errors} errors for {most_errors}, {lines} lines for {most_lines}"
            ));
        }
    }
    assert!(too_long.is_empty(), "{too_long:#?}");
}

#[test]
fn every_program_is_in_the_table() {
    let programs = fs::read_dir("tests/ui").expect("there are programs").count();
    assert_eq!(programs, 2 * MISTAKES.len(), "a program and its text for each mistake");
}
