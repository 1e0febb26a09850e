//! What the system said, in plain words and with what to do.

use std::io::{self, ErrorKind};

use crate::shown::shown;

/// Why the system refused to read or write, and what to do; never a bare error number.
///
/// ```
/// let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
/// assert_eq!(qkv_io::reason(&full), "the disk or device is full; free some space or write elsewhere");
/// ```
pub fn reason(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::NotFound => "there is no such file or folder; correct the path",
        ErrorKind::PermissionDenied => {
            "permission is denied; change the permissions, or name one that is yours"
        }
        ErrorKind::NotADirectory => {
            "a part of the path before its last is a file, not a folder; correct the path"
        }
        ErrorKind::IsADirectory => "it is a folder; name a file in it",
        ErrorKind::StorageFull => "the disk or device is full; free some space or write elsewhere",
        ErrorKind::QuotaExceeded => {
            "your share of the disk is used up; free some space or write elsewhere"
        }
        ErrorKind::FileTooLarge => {
            "the file would be larger than is allowed there; write elsewhere"
        }
        ErrorKind::ReadOnlyFilesystem => "nothing can be written to that disk; write elsewhere",
        ErrorKind::InvalidFilename => {
            "the name is too long or not allowed there; choose a shorter one"
        }
        ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => {
            "another program is using it; end that one or name another file"
        }
        ErrorKind::OutOfMemory => "there is too little memory; free some",
        ErrorKind::BrokenPipe => "what should read it has ended; start that again",
        ErrorKind::TimedOut | ErrorKind::StaleNetworkFileHandle => {
            "the disk or network did not answer; try again, or copy the file to this machine"
        }
        _ => {
            let says = error.to_string();
            let says = says
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_lowercase();
            return format!(
                "the system says \"{}\"; try another file or place",
                shown(&says)
            );
        }
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same words are said of what is read, written or run.
    #[test]
    fn advice_fits_reading_and_writing() {
        for kind in [ErrorKind::NotFound, ErrorKind::PermissionDenied] {
            let says = reason(&kind.into());
            for word in ["make", "place", "folder first", "elsewhere"] {
                assert!(!says.contains(word), "{word}: {says}");
            }
        }
    }

    #[test]
    fn no_error_of_the_system_shows_its_number() {
        for number in 1..134 {
            let says = reason(&io::Error::from_raw_os_error(number));
            assert!(
                !says.contains("os error") && says.contains("; "),
                "{number}: {says}"
            );
        }
    }
}
