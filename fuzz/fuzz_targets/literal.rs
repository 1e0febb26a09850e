//! Any text as a literal: an array of the stated size, or an error with a text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match qkv_io::parse_literal(text) {
    Ok(array) => {
        assert_eq!(array.shape.iter().product::<usize>(), array.len());
        assert!(!array.is_empty() && array.shape.len() <= 4);
        assert!(array.to_f64().is_ok());
        let _ = array.to_bools().map_err(|error| error.to_string());
    }
    Err(error) => {
        let says = error.to_string();
        assert!(!says.is_empty() && says.len() < 2000, "{says}");
        assert!(!says.chars().any(char::is_control), "{says:?}");
    }
});
