//! What servers do.
use std::{fs, net::TcpListener, time::Duration};

use shim_core::{
    report::Reason,
    task::{FORMAT, Op, Task},
};
use shim_installer::fetch::{self, FetchError, Limits};

use crate::{
    pack::program,
    rig::{Rig, install, limits, task},
    stub::{Reply, Stub},
};

/// An hour: a test that waits for it would never end.
const LONG: Duration = Duration::from_secs(3600);

fn artifact() -> Vec<u8> {
    program(&vec![5; 50_000])
}

fn fetch(stub: &Stub, limits: &Limits) -> Rig {
    let rig = Rig::new();
    rig.run(&task(vec![("spin", install(&stub.url("/a"), &artifact(), None))]), limits);
    rig
}

fn expect_requests(stub: &Stub, count: usize) {
    assert_eq!(stub.seen().len(), count, "{:?}", stub.seen());
}

#[test]
fn a_clear_no_is_not_asked_twice() {
    let cases = [
        ("404 Not Found", Reason::ArtifactNotFound),
        ("410 Gone", Reason::ArtifactNotFound),
        ("403 Forbidden", Reason::DownloadRefused),
        ("401 Unauthorized", Reason::DownloadRefused),
        ("418 I'm a teapot", Reason::DownloadRefused),
    ];
    for (line, reason) in cases {
        let stub = Stub::always(move || Reply::status(line));
        let failure = fetch(&stub, &limits()).expect_failure("spin", reason);
        assert!(failure.message.contains(&line[..3]), "{}", failure.message);
        expect_requests(&stub, 1);
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    let stub = Stub::start(|_, before| match before {
        0 => Reply::status("503 Service Unavailable"),
        1 => Reply::status("429 Too Many Requests"),
        _ => Reply::ok(&artifact()),
    });
    fetch(&stub, &limits()).expect_binary("spin", &artifact());
    expect_requests(&stub, 3);
}

#[test]
fn a_server_that_stays_busy_is_given_up() {
    let stub = Stub::always(|| Reply::status("502 Bad Gateway"));
    let failure = fetch(&stub, &limits()).expect_failure("spin", Reason::DownloadFailed);
    assert!(failure.message.contains("502 Bad Gateway") && failure.message.contains("tried 3 times"), "{failure}");
    expect_requests(&stub, 3);
}

#[test]
fn retry_after_is_obeyed() {
    let stub = Stub::start(|_, before| match before {
        0 => Reply::status("429 Too Many Requests\r\nRetry-After: 1"),
        _ => Reply::ok(&artifact()),
    });
    fetch(&stub, &limits()).expect_binary("spin", &artifact());
    let seen = stub.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_secs(1));
}

#[test]
fn retry_after_beyond_the_deadline_ends_at_once() {
    let stub = Stub::always(|| Reply::status("503 Service Unavailable\r\nRetry-After: 3600"));
    let failure = fetch(&stub, &limits()).expect_failure("spin", Reason::DownloadFailed);
    assert!(failure.message.contains("no time for another try"), "{failure}");
    expect_requests(&stub, 1);
}

#[test]
fn a_broken_transfer_is_started_anew() {
    let stub = Stub::start(|_, before| match before {
        // More than the artifact: nothing of it may stay behind the next try's bytes.
        0 => Reply::Short(vec![9; 60_000]),
        _ => Reply::ok(&artifact()),
    });
    fetch(&stub, &limits()).expect_binary("spin", &artifact());
    expect_requests(&stub, 2);
}

#[test]
fn transfers_that_always_break_are_given_up() {
    let stub = Stub::always(|| Reply::Short(artifact()));
    fetch(&stub, &limits()).expect_failure("spin", Reason::DownloadFailed);
    expect_requests(&stub, 3);
}

#[test]
fn nobody_listens() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rig = Rig::new();
    rig.run(&task(vec![("spin", install(&format!("http://127.0.0.1:{port}/"), b"", None))]), &limits());
    let failure = rig.expect_failure("spin", Reason::DownloadFailed);
    assert!(failure.message.contains("refused") && failure.message.contains("tried 3 times"), "{failure}");
}

#[test]
fn a_server_that_stops_sending_is_asked_again() {
    let stub = Stub::start(|_, before| match before {
        0 => Reply::Silent,
        1 => Reply::Stalled(artifact()[..9000].to_vec()),
        _ => Reply::ok(&artifact()),
    });
    // Long enough that the good answer is never taken for a stalled one.
    let limits = Limits { stall: Duration::from_secs(2), ..limits() };
    fetch(&stub, &limits).expect_binary("spin", &artifact());
    expect_requests(&stub, 3);
}

#[test]
fn a_download_ends_at_its_deadline_and_the_task_at_its_own() {
    let stub = Stub::always(|| Reply::Stalled(artifact()));
    let soon = Duration::from_millis(300);
    for limits in [
        Limits { artifact_deadline: soon, task_deadline: LONG, stall: LONG, ..limits() },
        Limits { artifact_deadline: LONG, task_deadline: soon, stall: LONG, ..limits() },
    ] {
        let rig = Rig::new();
        let one = install(&stub.url("/1"), b"1", None);
        let two = install(&stub.url("/2"), b"2", None);
        rig.run(&task(vec![("one", one), ("two", two)]), &limits);
        for shim in ["one", "two"] {
            rig.expect_failure(shim, Reason::DeadlineExceeded);
        }
        rig.expect_files(&["one/fetched.json", "two/fetched.json"]);
    }
}

#[test]
fn too_much_is_not_downloaded() {
    let endless = Stub::always(|| Reply::Endless);
    let failure = fetch(&endless, &limits()).expect_failure("spin", Reason::ArtifactTooLarge);
    assert!(failure.message.contains("more than 1 MiB"), "{failure}");
    expect_requests(&endless, 1);

    // One byte more than allowed, which never comes.
    let announced = Stub::always(|| Reply::Stalled(vec![0; 1 << 20]));
    fetch(&announced, &limits()).expect_failure("spin", Reason::ArtifactTooLarge);

    let just_fits = program(&vec![0; (1 << 20) - 20]);
    let (stub, rig) = (Stub::always(move || Reply::ok(&program(&vec![0; (1 << 20) - 20]))), Rig::new());
    rig.run(&task(vec![("spin", install(&stub.url("/"), &just_fits, None))]), &limits());
    rig.expect_binary("spin", &just_fits);
}

#[test]
fn another_digest_is_the_end() {
    let rig = Rig::new();
    let stub = Stub::always(|| Reply::ok(&artifact()));
    rig.run(&task(vec![("spin", install(&stub.url("/a"), b"another", None))]), &limits());
    let failure = rig.expect_failure("spin", Reason::ChecksumMismatch);
    let (expected, got) = (crate::rig::sha256(b"another"), crate::rig::sha256(&artifact()));
    let begin = format!("expected {}…, got {}…", &expected.as_str()[..12], &got.as_str()[..12]);
    assert!(failure.message.starts_with(&begin), "{failure}");
    assert!(failure.message.contains(got.as_str()), "{failure}");
    expect_requests(&stub, 1);
    rig.expect_files(&["spin/fetched.json"]);
}

#[test]
fn a_web_page_in_place_of_the_artifact_is_called_one() {
    let stub = Stub::always(|| Reply::ok(b"<html>please sign in</html>"));
    let failure = fetch(&stub, &limits()).expect_failure("spin", Reason::ChecksumMismatch);
    assert!(failure.message.contains("an HTML or XML page"), "{failure}");
}

#[test]
fn five_redirects_are_followed_and_not_a_sixth() {
    let hops = |last: usize| {
        Stub::start(move |_, before| match before {
            hop if hop < last => Reply::redirect(&format!("/hop/{hop}")),
            _ => Reply::ok(&artifact()),
        })
    };
    let five = hops(5);
    fetch(&five, &limits()).expect_binary("spin", &artifact());
    expect_requests(&five, 6);
    let six = hops(6);
    let failure = fetch(&six, &limits()).expect_failure("spin", Reason::DownloadRefused);
    assert!(failure.message.contains("redirects too often"), "{failure}");
    expect_requests(&six, 6);
}

#[test]
fn the_bytes_on_the_wire_are_what_the_digest_is_of() {
    let packed = crate::pack::Tar::of(&[("containerd-shim-x-v1", &artifact())]).gz();
    let served = packed.clone();
    let stub = Stub::always(move || Reply::Full("200 OK\r\nContent-Encoding: gzip".to_owned(), served.clone()));
    let rig = Rig::new();
    rig.run(&task(vec![("spin", install(&stub.url("/a"), &packed, None))]), &limits());
    rig.expect_binary("spin", &artifact());
}

#[test]
fn credentials_reach_the_server_and_no_message() {
    let stub = Stub::always(|| Reply::status("403 Forbidden"));
    let rig = Rig::new();
    let url = stub.url("/a?token=hunter2").replace("http://", "http://user:hunter2@");
    rig.run(&task(vec![("spin", install(&url, b"", None))]), &limits());
    let failure = rig.expect_failure("spin", Reason::DownloadRefused);
    assert!(failure.message.contains("127.0.0.1") && !failure.message.contains("hunter2"), "{failure}");
    let head = &stub.seen()[0].head;
    assert!(head.contains("token=hunter2"), "{head}");
    // user:hunter2 in base64.
    assert!(head.to_lowercase().contains("authorization: basic") && head.contains("dXNlcjpodW50ZXIy"), "{head}");
}

#[test]
fn one_bad_shim_does_not_hold_up_the_others() {
    let stub = Stub::start(|path, _| match path {
        "/good" => Reply::ok(&artifact()),
        _ => Reply::status("404 Not Found"),
    });
    let rig = Rig::new();
    let task = task(vec![
        ("bad", install(&stub.url("/bad"), b"", None)),
        ("gone", Op::Remove),
        ("good", install(&stub.url("/good"), &artifact(), None)),
        ("odd", install("oci://registry.example/odd", b"", None)),
    ]);
    rig.run(&task, &limits());
    rig.expect_failure("bad", Reason::ArtifactNotFound);
    rig.expect_failure("odd", Reason::DownloadRefused);
    rig.expect_binary("good", &artifact());
    rig.expect_files(&["bad/fetched.json", "good/binary", "good/fetched.json", "odd/fetched.json"]);
}

#[test]
fn shims_with_one_artifact_share_the_download() {
    let packed = || crate::pack::Tar::of(&[("a", &artifact()), ("b", &program(b"b"))]).gz();
    let stub = Stub::always(move || Reply::ok(&packed()));
    let rig = Rig::new();
    let op = |binary| install(&stub.url("/x"), &packed(), Some(binary));
    rig.run(&task(vec![("one", op("a")), ("two", op("b")), ("three", op("c"))]), &limits());
    rig.expect_binary("one", &artifact());
    rig.expect_binary("two", &program(b"b"));
    rig.expect_failure("three", Reason::BinaryNotFound);
    expect_requests(&stub, 1);
}

#[test]
fn the_results_of_an_earlier_run_are_gone() {
    let rig = Rig::new();
    let good = Stub::always(|| Reply::ok(&artifact()));
    let bad = Stub::always(|| Reply::status("404 Not Found"));
    rig.run(&task(vec![("spin", install(&good.url("/a"), &artifact(), None))]), &limits());
    rig.expect_binary("spin", &artifact());
    rig.run(&task(vec![("spin", install(&bad.url("/a"), &artifact(), None))]), &limits());
    rig.expect_failure("spin", Reason::ArtifactNotFound);
    rig.expect_files(&["spin/fetched.json"]);
}

#[test]
fn only_an_unusable_task_or_directory_is_fatal() {
    let rig = Rig::new();
    let newer = Task { format: FORMAT + 1, ..task(vec![]) };
    assert!(matches!(fetch::run(&newer, rig.path(), &limits()), Err(FetchError::TooNew(_))));
    let missing = rig.path().join("missing");
    assert!(matches!(fetch::run(&task(vec![]), &missing, &limits()), Err(FetchError::WorkDir { .. })));
    let file = rig.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(fetch::run(&task(vec![]), &file, &limits()), Err(FetchError::WorkDir { .. })));
    rig.run(&task(vec![]), &limits());
}
