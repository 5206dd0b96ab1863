//! Does a program fit this machine? The answer is in the first 20 bytes of an ELF file.

/// Bytes of a file that [`check`] needs.
pub const HEAD: usize = 20;

/// `std::env::consts::ARCH`, what people call it, and its number in `e_machine` (elf.h).
const MACHINES: [(&str, &str, u16); 6] = [
    ("x86_64", "amd64", 62),
    ("aarch64", "arm64", 183),
    ("arm", "arm", 40),
    ("powerpc64", "ppc64", 21),
    ("riscv64", "riscv64", 243),
    ("s390x", "s390x", 22),
];
const EXECUTABLE: u16 = 2;
const POSITION_INDEPENDENT: u16 = 3;

/// Why a file cannot be run as a shim on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// A shell script, for example.
    #[error("it is not an ELF program but {0}")]
    NotElf(&'static str),
    /// An object file, a core dump.
    #[error("it is an ELF file but not a program")]
    NotAProgram,
    /// A program for other machines.
    #[error("it is a program for {found}, this machine is {here}")]
    OtherMachine {
        /// What it is for.
        found: String,
        /// What it should be for.
        here: &'static str,
    },
}

/// Checks a file, given its first [`HEAD`] bytes, for a machine of the architecture that this program was built for.
pub fn check(head: &[u8]) -> Result<(), ElfError> {
    check_for(head, std::env::consts::ARCH)
}

fn check_for(head: &[u8], arch: &'static str) -> Result<(), ElfError> {
    if !head.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf(looks_like(head)));
    }
    let (Some(kind), Some(machine)) = (half_word(head, 16), half_word(head, 18)) else {
        return Err(ElfError::NotAProgram);
    };
    if kind != EXECUTABLE && kind != POSITION_INDEPENDENT {
        return Err(ElfError::NotAProgram);
    }
    match MACHINES.iter().find(|(name, ..)| *name == arch) {
        Some((_, here, number)) if *number != machine => Err(ElfError::OtherMachine { found: name_of(machine), here }),
        _ => Ok(()),
    }
}

fn looks_like(head: &[u8]) -> &'static str {
    match head {
        [] => "an empty file",
        [b'#', b'!', ..] => "a script",
        _ => "something else",
    }
}

/// The number at `at`, in the byte order that the file names.
fn half_word(head: &[u8], at: usize) -> Option<u16> {
    let bytes = head.get(at..at + 2)?.try_into().ok()?;
    match head.get(5)? {
        2 => Some(u16::from_be_bytes(bytes)),
        _ => Some(u16::from_le_bytes(bytes)),
    }
}

fn name_of(machine: u16) -> String {
    let known = MACHINES.iter().find(|(.., number)| *number == machine);
    known.map_or_else(|| format!("ELF machine {machine}"), |(_, name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(order: u8, kind: [u8; 2], machine: [u8; 2]) -> Vec<u8> {
        let mut head = b"\x7fELF\x02".to_vec();
        head.push(order);
        head.resize(16, 0);
        head.extend(kind.iter().chain(&machine));
        head
    }

    #[test]
    fn this_test_fits_its_own_machine() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(check(&program[..HEAD]), Ok(()));
    }

    #[test]
    fn both_byte_orders_and_both_kinds_of_programs_fit() {
        assert_eq!(check_for(&elf(1, [2, 0], [62, 0]), "x86_64"), Ok(()));
        assert_eq!(check_for(&elf(1, [3, 0], [183, 0]), "aarch64"), Ok(()));
        assert_eq!(check_for(&elf(2, [0, 3], [0, 22]), "s390x"), Ok(()));
    }

    #[test]
    fn another_machine_is_named() {
        let error = check_for(&elf(1, [3, 0], [183, 0]), "x86_64").unwrap_err().to_string();
        assert_eq!(error, "it is a program for arm64, this machine is amd64");
        let error = check_for(&elf(1, [3, 0], [8, 0]), "aarch64").unwrap_err().to_string();
        assert_eq!(error, "it is a program for ELF machine 8, this machine is arm64");
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert_eq!(check(b"#!/bin/sh\nexec true\n"), Err(ElfError::NotElf("a script")));
        assert_eq!(check(b""), Err(ElfError::NotElf("an empty file")));
        assert_eq!(check(b"<html>"), Err(ElfError::NotElf("something else")));
        assert_eq!(check(b"\x7fELF\x02\x01"), Err(ElfError::NotAProgram));
        assert_eq!(check_for(&elf(1, [1, 0], [62, 0]), "x86_64"), Err(ElfError::NotAProgram));
    }
}
