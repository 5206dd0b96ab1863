//! What is in the artifact: good, careless and hostile ones.
use shim_core::report::Reason;
use shim_installer::fetch::Limits;
use tar::EntryType;

use crate::{
    pack::{Tar, gz, program},
    rig::{Rig, install, limits, task},
    stub::{Reply, Stub},
};

const SHIM: &str = "containerd-shim-spin-v2";

fn fetch(artifact: &[u8], binary: Option<&str>, limits: &Limits) -> Rig {
    let served = artifact.to_vec();
    let stub = Stub::always(move || Reply::ok(&served));
    let rig = Rig::new();
    rig.run(&task(vec![("spin", install(&stub.url("/artifact"), artifact, binary))]), limits);
    rig
}

fn expect_binary(artifact: &[u8], binary: Option<&str>, program: &[u8]) {
    let rig = fetch(artifact, binary, &limits());
    rig.expect_binary("spin", program);
    rig.expect_files(&["spin/binary", "spin/fetched.json"]);
}

/// Returns the message.
fn expect_failure(artifact: &[u8], binary: Option<&str>, reason: Reason) -> String {
    expect_failure_within(&limits(), artifact, binary, reason)
}

fn expect_failure_within(limits: &Limits, artifact: &[u8], binary: Option<&str>, reason: Reason) -> String {
    let rig = fetch(artifact, binary, limits);
    // Nothing of a refused artifact stays.
    rig.expect_files(&["spin/fetched.json"]);
    rig.expect_failure("spin", reason).message
}

#[test]
fn tar_gz_tar_zst_and_the_bare_program_are_known_by_content() {
    let program = program(&[1; 5000]);
    let files: [(&str, &[u8]); 2] = [("README.md", b"read me"), (SHIM, &program)];
    expect_binary(&Tar::of(&files).gz(), None, &program);
    expect_binary(&Tar::of(&files).zst(), None, &program);
    expect_binary(&program, None, &program);
    expect_binary(&program, Some("named-otherwise"), &program);
}

#[test]
fn the_binary_may_lie_deep_and_have_any_name_that_the_shim_gives() {
    let program = program(b"deep");
    expect_binary(&Tar::of(&[("./a/b/c/containerd-shim-x-v1", &program)]).gz(), None, &program);
    expect_binary(&Tar::of(&[(SHIM, b"another"), ("bin/mine", &program)]).gz(), Some("mine"), &program);
}

#[test]
fn an_archive_in_several_compressed_parts_is_read_whole() {
    let program = program(&[2; 5000]);
    let tar = Tar::of(&[("README.md", b"read me"), (SHIM, &program)]).bytes();
    let (first, second) = tar.split_at(1000);
    expect_binary(&[gz(first), gz(second)].concat(), None, &program);
    let parts = [zstd::encode_all(first, 3).unwrap(), zstd::encode_all(second, 3).unwrap()].concat();
    expect_binary(&parts, None, &program);
}

#[test]
fn long_names_are_read_in_both_formats() {
    let program = program(b"long");
    let path = format!("{}/{SHIM}", "d".repeat(150));
    let gnu = Tar::new().long_name(path.as_bytes()).entry("cut", EntryType::Regular, &program);
    expect_binary(&gnu.gz(), None, &program);
    let posix = Tar::new().extension("path", &path).entry("cut", EntryType::Regular, &program);
    expect_binary(&posix.gz(), None, &program);
}

#[test]
fn a_path_that_leaves_the_archive_is_refused_in_every_format() {
    let program = program(b"good");
    let good = || Tar::of(&[(SHIM, &program)]);
    for path in ["../evil", "/etc/cron.d/evil", "a/../../evil"] {
        let plain = good().entry(path, EntryType::Regular, b"evil");
        let gnu = good().long_name(path.as_bytes()).entry("good", EntryType::Regular, b"evil");
        let posix = good().extension("path", path).entry("good", EntryType::Regular, b"evil");
        for archive in [plain, gnu, posix] {
            let message = expect_failure(&archive.gz(), None, Reason::ArtifactUnsafe);
            assert!(message.contains(path), "{message}");
        }
    }
}

#[test]
fn a_link_or_device_in_place_of_the_binary_is_refused() {
    for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo] {
        let archive = Tar::new().entry(SHIM, kind, b"");
        let message = expect_failure(&archive.gz(), None, Reason::ArtifactUnsafe);
        assert!(message.contains(SHIM), "{message}");
    }
}

#[test]
fn other_links_do_no_harm() {
    let program = program(b"good");
    let archive = Tar::new().entry("latest", EntryType::Symlink, b"").entry(SHIM, EntryType::Regular, &program);
    expect_binary(&archive.gz(), None, &program);
}

#[test]
fn no_binary_or_several_are_explained() {
    let message = expect_failure(&Tar::of(&[("README.md", b"x"), ("spin", b"y")]).gz(), None, Reason::BinaryNotFound);
    assert!(message.contains("README.md, spin"), "{message}");
    expect_failure(&Tar::of(&[(SHIM, b"x")]).gz(), Some("mine"), Reason::BinaryNotFound);
    expect_failure(&Tar::new().gz(), None, Reason::BinaryNotFound);

    let program = program(b"one of two");
    let two = Tar::of(&[(SHIM, &program), ("containerd-shim-slight-v1", &program)]).gz();
    let message = expect_failure(&two, None, Reason::BinaryAmbiguous);
    assert!(message.contains(SHIM) && message.contains("slight") && message.contains("spec.binary"), "{message}");
    expect_binary(&two, Some(SHIM), &program);
}

#[test]
fn what_does_not_run_here_is_refused() {
    let script = expect_failure(&Tar::of(&[(SHIM, b"#!/bin/sh\n")]).gz(), None, Reason::WrongArchitecture);
    assert!(script.contains(SHIM) && script.contains("script"), "{script}");
    let mut foreign = program(b"");
    foreign[18] ^= 0xff;
    expect_failure(&foreign, None, Reason::WrongArchitecture);
    expect_failure(&Tar::of(&[(SHIM, &foreign)]).zst(), None, Reason::WrongArchitecture);
}

#[test]
fn what_is_no_artifact_is_described() {
    let plain_tar = Tar::of(&[(SHIM, b"x")]).bytes();
    let cases: [(&[u8], &str); 5] = [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><title>Sign in</title>", "an HTML or XML page"),
        (b"PK\x03\x04zip", "a zip file"),
        (b"#!/bin/sh\n", "a script"),
        (&plain_tar, "not compressed"),
    ];
    for (artifact, words) in cases {
        let message = expect_failure(artifact, None, Reason::ArtifactUnreadable);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_damaged_archive_is_never_half_used() {
    let program = program(&(0..20_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    let tar = || Tar::of(&[(SHIM, &program), ("README.md", &[3; 2000])]);
    let inner = tar().bytes();
    for whole in [tar().gz(), tar().zst()] {
        for part in [20, whole.len() / 2, whole.len() - 9] {
            expect_failure(&whole[..part], None, Reason::ArtifactUnreadable);
        }
    }
    for part in [100, 700, program.len(), program.len() + 1000] {
        expect_failure(&gz(&inner[..part]), None, Reason::ArtifactUnreadable);
    }
    expect_failure(&gz(b"not a tar archive at all").repeat(100), None, Reason::ArtifactUnreadable);
}

#[test]
fn a_bomb_is_given_up_at_the_limit() {
    let zeros = vec![0; 64 << 20];
    let beside = Tar::of(&[("zeros", &zeros), (SHIM, b"x")]);
    let inside = Tar::of(&[(SHIM, &zeros)]);
    for bomb in [beside.gz(), inside.zst(), program(&vec![0; 1 << 20])] {
        let limits = Limits { artifact_bytes: 2 << 20, ..limits() };
        let message = expect_failure_within(&limits, &bomb, None, Reason::ArtifactTooLarge);
        assert!(message.contains("unpacks to more than 1 MiB"), "{message}");
    }
}

#[test]
fn neither_names_nor_numbers_of_entries_can_fill_the_memory() {
    let wide = Limits { unpacked_bytes: 1 << 30, entries: 3, ..limits() };
    let name = Tar::new().long_name(&vec![b'a'; 4 << 20]).entry(SHIM, EntryType::Regular, b"x");
    expect_failure_within(&wide, &name.gz(), None, Reason::ArtifactTooLarge);

    let program = program(b"");
    let three = || Tar::of(&[("a", b""), ("b", b""), (SHIM, &program)]);
    fetch(&three().gz(), None, &wide).expect_binary("spin", &program);
    let four = three().entry("c", EntryType::Regular, b"");
    let message = expect_failure_within(&wide, &four.gz(), None, Reason::ArtifactTooLarge);
    assert!(message.contains("more than 3 entries"), "{message}");
}

#[test]
fn sparse_files_are_refused_in_both_formats() {
    let mut gnu = Tar::new().entry(SHIM, EntryType::Regular, b"x").bytes();
    // GNU tar's own format: type, one part of one byte at 0, whole size, then the checksum over all that.
    for (at, field) in [(156, "S"), (386, "00000000000"), (398, "00000000001"), (483, "00000000001")] {
        gnu[at..at + field.len()].copy_from_slice(field.as_bytes());
    }
    let sum: u32 = (0..512).map(|at| if (148..156).contains(&at) { 32 } else { u32::from(gnu[at]) }).sum();
    gnu[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let posix = Tar::new().extension("GNU.sparse.major", "1").entry(SHIM, EntryType::Regular, b"x");
    for archive in [gz(&gnu), posix.gz()] {
        let message = expect_failure(&archive, None, Reason::ArtifactUnreadable);
        assert!(message.contains("--sparse"), "{message}");
    }
}
