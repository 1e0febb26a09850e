//! Any bytes as a file, without a name and with one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for name in [None, Some("q")] {
        match qkv_io::read_bytes(bytes, name, "fuzz") {
            Ok(array) => {
                assert_eq!(array.shape.iter().product::<usize>(), array.len());
                let _ = array.to_f64().map_err(|error| error.to_string());
                let _ = array.to_bools().map_err(|error| error.to_string());
            }
            Err(error) => {
                let says = error.to_string();
                assert!(!says.is_empty() && says.len() < 6000, "{says}");
                assert!(!says.chars().any(char::is_control), "{says:?}");
            }
        }
    }
});
