//! Bad input: exit status 2, nothing on standard output, a message that names the argument, what
//! is wrong with which shape or value, and what to do. Never a panic.

mod common;

use common::{npy, npy_f32, refusals, run_with, words};
use std::fs;
use std::path::Path;

/// q, k and v of two rows and two columns.
const OK: &str = "--q '1 0;0 1' --k '1 0;0 1' --v '2 0;0 4'";
/// Tokens and weights of two columns.
const X: &str = "--x '1 0;0 1' --wq '1 0;0 1' --wk '1 0;0 1' --wv '1 0;0 1'";

/// Arguments after `qkv explain` ({OK} and {X} stand for the above), and words of the message.
#[rustfmt::skip] // one line for each
const CASES: &[(&str, &[&str])] = &[
    // Words of the command line.
    ("--quary 1", &["--quary", "no such option", "did you mean --q"]),
    ("--nonsense", &["--nonsense", "no such option", "--help"]),
    ("matrix.npy", &["\"matrix.npy\": nothing takes this", "--q"]),
    ("{OK} --q 1", &["--q", "more than once"]),
    ("--causal --causal", &["--causal", "more than once"]),
    ("--q", &["--q", "value is missing"]),
    ("--q --k 1 --v 1", &["--q", "an array is missing before --k"]),
    ("--scale", &["--scale", "value is missing"]),
    ("--json=yes", &["--json", "takes no value", "\"yes\""]),
    ("'1 0; 0 1'", &["\"1 0; 0 1\": nothing takes this", "go after their option, such as --q"]),
    ("--q 1 0 1", &["\"0\": nothing takes this", "--q takes one value and has \"1\"", "quotation marks"]),
    ("--causal top-left bottom-right", &["\"bottom-right\"", "--causal takes one value and has \"top-left\""]),
    ("--output=a.txt --output=b.txt", &["-o: given more than once"]),
    ("--output", &["-o: a value is missing"]),
    // Empty words, as a shell variable that is not set gives.
    ("--q '' --k 1 --v 1", &["--q", "\"\" is not possible", "shell variable", "give an array"]),
    ("{OK} --alibi ''", &["--alibi", "\"\" is not possible", "shell variable"]),
    ("{OK} --alibi=", &["--alibi", "shell variable"]),
    ("{OK} --keep ''", &["--keep", "shell variable"]),
    // Not all arrays.
    ("--q 1", &["--k, --v", "missing", "give all of --q, --k and --v"]),
    ("--q 1 --v 1", &["--k", "missing"]),
    ("--k 1 --v 1 --causal", &["--q", "missing", "built-in example"]),
    ("{X} --q 1", &["--q", "--x", "give either"]),
    ("{X} --v 1", &["--v", "--x", "give either"]),
    ("{OK} --past-k '1 1'", &["--past-v", "missing", "--past-k"]),
    ("{OK} --past-v '1 1'", &["--past-k", "missing", "--past-v"]),
    // Literals.
    ("--q '1 0;0' --k 1 --v 1", &["--q", "rows have 2, 1 values", "same number"]),
    ("--q '1 a' --k 1 --v 1", &["--q", "\"1 a\""]),
    ("--q '[[1,2],[3]]' --k 1 --v 1", &["--q", "[1]", "same length"]),
    ("--q '[[1,2]' --k 1 --v 1", &["--q", "still open", "add ]"]),
    ("--q '[1,2]]' --k 1 --v 1", &["--q", "]", "closes nothing"]),
    ("--q ';' --k 1 --v 1", &["--q"]),
    ("--q '1e999' --k 1 --v 1", &["--q", "1e999", "too large"]),
    ("--q '1 1/3' --k 1 --v 1", &["--q", "1/3"]),
    ("--q '[1, true]' --k 1 --v 1", &["--q", "true", "mixes"]),
    ("--q '[true, false]' --k 1 --v 1", &["--q", "truth values", "--keep"]),
    ("--q '[[[[[1]]]]]' --k 1 --v 1", &["--q", "4"]),
    ("--q '[1,2]' --k 1 --v 1", &["--q", "[2]", "1 axis", "2, 3 or 4", "\"1 0\""]),
    // Files.
    ("--q nothing.npy --k 1 --v 1", &["--q", "no file", "nothing.npy"]),
    ("--q folder --k 1 --v 1", &["--q", "folder", "name a file"]),
    ("--q empty.npy --k 1 --v 1", &["--q", "empty.npy", "0 bytes"]),
    ("--q model.pt --k 1 --v 1", &["--q", "model.pt"]),
    ("--q pickle.npy --k 1 --v 1", &["--q", "pickle.npy", "pickle"]),
    ("--q gguf.npy --k 1 --v 1", &["--q", "GGUF", "not npy"]),
    ("--q short.npy --k 1 --v 1", &["--q", "short.npy", "short"]),
    ("--q objects.npy --k 1 --v 1", &["--q", "objects.npy", "|O"]),
    ("--q complex.npy --k 1 --v 1", &["--q", "complex.npy", "c8"]),
    ("--q good.npy:q --k 1 --v 1", &["--q", "good.npy", "leave out \":q\""]),
    ("--q two.json --k 1 --v 1", &["--q", "two.json", "2 arrays", "say which"]),
    ("--q two.json:c --k 1 --v 1", &["--q", "\"c\"", "it holds"]),
    ("--q ragged.csv --k 1 --v 1", &["--q", "ragged.csv", "2, 3"]),
    ("--q text.csv --k 1 --v 1", &["--q", "text.csv", "\"x\" is not a number"]),
    ("--q latin.csv --k 1 --v 1", &["--q", "latin.csv", "UTF-8"]),
    ("--q broken.json --k 1 --v 1", &["--q", "broken.json"]),
    ("--q short.safetensors:w --k 1 --v 1", &["--q", "short.safetensors", "16 bytes short"]),
    ("--q noise.bin --k 1 --v 1", &["--q", "noise.bin", "format is not known"]),
    ("--q flat.npy --k 1 --v 1", &["--q", "[4]", "1 axis"]),
    ("--q five.npy --k 1 --v 1", &["--q", "[1, 1, 1, 1, 1]", "5 axes"]),
    ("--q hollow.npy --k 1 --v 1", &["--q", "1152921504606846976", "without a value"]),
    ("--q big.npy --k 1 --v 1", &["--q", "9007199254740993", "64-bit"]),
    ("--q - --k 1 --v 1", &["--q", "standard input is empty"]),
    // Shapes that do not fit.
    ("--q '1 0' --k '1 0 0' --v '1'", &["--k", "head_dim 2", "[1, 1, 1, 3]", "transposed", "[batch, heads, length, width]"]),
    ("--q '1 0' --k '1 0' --v '1;2'", &["--v", "keys 1", "has 2", "each key needs its value"]),
    ("--q '[[[[1]]],[[[1]]]]' --k 1 --v 1", &["--k", "batch 2", "[2, 1, 1, 1]"]),
    ("--q '[[[1]],[[1]],[[1]]]' --k '[[[1]],[[1]]]' --v '[[[1]],[[1]]]'", &["--k", "3 query heads", "2 key", "multiple"]),
    ("--q '[[[1]],[[1]]]' --k '[[[1]],[[1]]]' --v '[[[1]]]'", &["--v", "heads 2", "[1, 1, 1, 1]"]),
    ("--q '[[],[]]' --k '[[],[]]' --v '1;2'", &["--q"]),
    ("{OK} --past-k '1 1 1' --past-v '1 1'", &["--past-k", "head_dim 3", "[1, 1, 1, 3]"]),
    ("{OK} --past-k '1 1' --past-v '1'", &["--past-v", "value_dim 1"]),
    ("{OK} --past-k '1 1' --past-v '1 1;2 2'", &["--past-k", "past v", "keys 1", "[1, 1, 2, 2]"]),
    // Heads.
    ("{OK} --heads 0", &["--heads", "\"0\"", "whole number from 1"]),
    ("{OK} --heads 99999999999999999999", &["--heads", "too large", "from 1 to 18446744073709551615"]),
    ("{OK} --heads two", &["--heads", "\"two\"", "whole number from 1"]),
    ("{OK} --heads 1.5", &["--heads", "\"1.5\""]),
    ("{OK} --heads 3", &["--q", "2 columns (shape [2, 2]) into 3 heads (--heads)", "divide evenly"]),
    ("{OK} --kv-heads 1", &["--kv-heads", "--heads", "give both"]),
    ("{OK} --heads 2 --kv-heads 3", &["--kv-heads", "3 with 2 query heads", "multiple"]),
    ("--q '[[[[1]]]]' --k '[[[[1]]]]' --v '[[[[1]]]]' --heads 2", &["--q", "[1, 1, 1, 1]", "1 head,", "--heads says 2"]),
    ("--heads 4 --kv-heads 2 --q '1 2 3 4' --k '1 2 3' --v '1 2'", &["--k", "3 columns (shape [1, 3]) into 2 heads (--kv-heads)"]),
    ("{OK} --layout bshd", &["--layout", "\"bshd\"", "bhld, blhd"]),
    // Scale, softcap, dropout.
    ("{OK} --scale nan", &["--scale", "NaN", "finite"]),
    ("{OK} --scale inf", &["--scale", "inf", "finite"]),
    ("{OK} --scale=1e400", &["--scale", "\"1e400\"", "too large for a 64-bit number", "1.8e308"]),
    ("{OK} --scale=-1e400", &["--scale", "\"-1e400\"", "too large"]),
    ("{OK} --softcap 1e-400", &["--softcap", "\"1e-400\"", "too small for a 64-bit number", "5e-324"]),
    ("{OK} --dropout 0.0001e-400", &["--dropout", "\"0.0001e-400\"", "too small"]),
    ("{OK} --position rotary --rotary-base 1e999", &["--rotary-base", "\"1e999\"", "too large"]),
    ("{OK} --position rotary --rotary-scaling linear:1e999", &["--rotary-scaling", "linear:1e999", "too large"]),
    ("--x '1 0' --init normal:1e-400", &["--init", "\"normal:1e-400\"", "too small"]),
    ("--x '1 0' --init uniform:1e400", &["--init", "\"uniform:1e400\"", "too large"]),
    ("{OK} --scale half", &["--scale", "\"half\"", "one number"]),
    ("{OK} --scale 1/8", &["--scale", "\"1/8\"", "one number"]),
    ("{OK} --softcap 0", &["--softcap", "0", "above 0"]),
    ("{OK} --softcap -50", &["--softcap", "-50", "above 0"]),
    ("{OK} --softcap nan", &["--softcap", "NaN", "above 0"]),
    ("{OK} --dropout 1", &["--dropout", "1", "not including, 1"]),
    ("{OK} --dropout -0.1", &["--dropout", "-0.1"]),
    ("{OK} --dropout 50%", &["--dropout", "\"50%\"", "one number"]),
    ("{OK} --dropout 0.5 --seed -1", &["--seed", "\"-1\"", "whole number from 0"]),
    ("{OK} --seed 1", &["--seed", "no meaning without --dropout, --init or --exercise random", "leave it out"]),
    ("{X} --seed 0", &["--seed", "--init", "leave it out"]),
    ("{OK} --seed 18446744073709551616", &["--seed", "18446744073709551615"]),
    // Causal, window, lengths, documents.
    ("--q 1 --k '1;2' --v '1;2' --causal", &["--causal", "1 query against 2 keys", "top-left", "bottom-right"]),
    ("{OK} --past-k '1 1' --past-v '1 1' --causal", &["--causal", "1 of them cached", "bottom-right"]),
    ("{OK} --causal upper", &["--causal", "\"upper\"", "top-left, bottom-right"]),
    ("{OK} --causal 1.5", &["--causal", "\"1.5\"", "whole offset"]),
    ("{OK} --causal 9223372036854775807", &["--causal", "9223372036854775807", "to 9007199254740992 (2^53)"]),
    ("{OK} --window 99999999999999999999,0", &["--window", "too large", "18446744073709551615, or inf"]),
    ("{OK} --kv-lengths 99999999999999999999", &["--kv-lengths", "too large", "18446744073709551615"]),
    ("{OK} --documents 1,99999999999999999999", &["--documents", "too large", "18446744073709551615"]),
    ("{OK} --window 3", &["--window", "\"3\"", "BACK,FORWARD"]),
    ("{OK} --window -1,0", &["--window", "\"-1,0\"", "from 0"]),
    ("{OK} --window 1,2,3", &["--window", "\"1,2,3\""]),
    ("{OK} --window a,b", &["--window", "\"a,b\"", "for example 2,0"]),
    ("{OK} --kv-lengths 1,2", &["--kv-lengths", "2 values", "1 needed", "batch entry"]),
    ("{OK} --kv-lengths 3", &["--kv-lengths", "3", "2 keys"]),
    ("{OK} --kv-lengths -1", &["--kv-lengths", "\"-1\"", "from 0"]),
    ("{OK} --kv-lengths 1,", &["--kv-lengths", "\"1,\""]),
    ("{OK} --documents 1,2", &["--documents", "[1, 2]", "3 queries", "there are 2"]),
    ("{OK} --documents 1:1,1:2", &["--documents", "keys", "add up"]),
    ("{OK} --documents 1:2:3", &["--documents", "QUERIES:KEYS"]),
    ("{OK} --documents one", &["--documents", "\"one\"", "for example 2,3"]),
    ("{OK} --documents 18446744073709551615,3", &["--documents", "too many"]),
    ("--q '0;0' --k '0;0;0' --v '1;2;3' --documents 1:1,1:2 --causal", &["--causal", "document 1", "1 query against 2 keys"]),
    ("{OK} --empty-rows nan", &["--empty-rows", "\"nan\"", "zero, error"]),
    ("{OK} --drop '1 1' --empty-rows error", &["--empty-rows", "2 of 2 rows", "[0, 0, 0]", "loosen the mask"]),
    // Masks and biases.
    ("{OK} --keep '1 0.5'", &["--keep", "0.5", "[0, 1]", "neither 0 nor 1"]),
    ("{OK} --drop '2 0'", &["--drop", "2", "neither 0 nor 1"]),
    ("{OK} --keep '1e-300 1; 0 1'", &["--keep", "the value 1e-300 at [0, 0] is neither"]),
    ("{OK} --keep '-inf 0'", &["--keep", "-inf", "neither 0 nor 1"]),
    ("{OK} --keep '1 1 1'", &["--keep", "[1, 1, 1, 3]", "[1, 1, 2, 2]"]),
    ("{OK} --keep '1;1;1'", &["--keep", "[1, 1, 3, 1]", "[1, 1, 2, 2]"]),
    ("{OK} --keep five.npy", &["--keep", "5 axes", "at most 4"]),
    ("--q 1 --k '1;2;3' --v '1;2;3' --keep '1;1;1'", &["--keep", "transposed"]),
    ("{OK} --past-k '1 1' --past-v '1 1' --keep '1 0;1 1'", &["--keep", "[1, 1, 2, 3]", "cached keys"]),
    ("{OK} --bias '1 2 3'", &["--bias", "[1, 1, 1, 3]", "[1, 1, 2, 2]", "axes align to the right"]),
    ("{OK} --bias '[true,false]'", &["--bias", "truth values", "--keep or --drop"]),
    ("{OK} --alibi '1 2'", &["--alibi", "2 values", "1 needed", "query head"]),
    ("{OK} --alibi=1e400", &["--alibi", "\"1e400\"", "too large", "give a smaller one"]),
    ("{OK} --sinks 1e400", &["--sinks", "\"1e400\"", "give a smaller one"]),
    ("{OK} --alibi inf", &["--alibi", "inf", "finite slopes"]),
    ("{OK} --alibi '1 2;3 4'", &["--alibi", "[2, 2]", "a list"]),
    ("{OK} --sinks '1 2'", &["--sinks", "2 values", "1 needed"]),
    ("{OK} --q-norm '1 1 1'", &["--q-norm", "3 values", "2 needed", "column of a head"]),
    ("{OK} --k-norm 1", &["--k-norm", "1 value given", "2 needed"]),
    // Positions.
    ("{OK} --position learned", &["--position", "\"learned\"", "rotary"]),
    ("{OK} --position sinusoidal", &["--position sinusoidal", "--x"]),
    ("{OK} --rotary-base 500", &["--rotary-base", "--position"]),
    ("{OK} --rotary-dim 2", &["--rotary-dim", "--position"]),
    ("{OK} --rotary-scaling linear:2", &["--rotary-scaling", "--position"]),
    ("{OK} --position-offset 2", &["--position-offset", "--position"]),
    ("{X} --position sinusoidal --rotary-base 10", &["--rotary-base", "--position sinusoidal", "belongs to"]),
    ("{X} --position sinusoidal --position-offset -1", &["--position-offset", "-1", "from 0"]),
    ("{OK} --position rotary --rotary-dim 3", &["--rotary-dim", "3 of 2 columns", "even number"]),
    ("{OK} --position rotary --rotary-dim 4", &["--rotary-dim", "4 of 2 columns", "even number"]),
    ("--q 1 --k 1 --v 1 --position rotary", &["--rotary-dim", "1 of 1 column ", "even"]),
    ("{OK} --position rotary --rotary-base 0", &["--rotary-base", "0", "above 0"]),
    ("{OK} --position rotary --rotary-base -10000", &["--rotary-base", "-10000", "above 0"]),
    ("{OK} --position rotary --rotary-scaling yarn:4", &["--rotary-scaling", "\"yarn:4\"", "linear:FACTOR"]),
    ("{OK} --position rotary --rotary-scaling linear", &["--rotary-scaling", "\"linear\"", "linear:FACTOR"]),
    ("{OK} --position rotary --rotary-scaling linear:0", &["--rotary-scaling", "factor 0", "above 0"]),
    ("{OK} --position rotary --rotary-scaling llama3:8,1,4", &["--rotary-scaling", "llama3:8,1,4,8192"]),
    ("{OK} --position rotary --rotary-scaling llama3:8,4,1,8192", &["--rotary-scaling", "high_freq_factor 1", "exchanged"]),
    ("{OK} --position rotary --position-offset x", &["--position-offset", "\"x\"", "whole number"]),
    ("{OK} --position rotary --position-offset 9007199254740992", &["--position-offset", "9007199254740993", "2^53"]),
    // The layer.
    ("--x '1 0'", &["--wq, --wk, --wv", "missing", "--init normal:0.02"]),
    ("--x '1 0' --wq '1;1' --wv '1;1'", &["--wk", "missing", "--init"]),
    ("--x '[1,0]' --init xavier", &["--x", "[2]", "[L, D]"]),
    ("--x '[[[[1]]]]' --init xavier", &["--x", "[1, 1, 1, 1]", "[B, L, D]"]),
    ("--x '1 0 0' --wq '1 0 0;0 1 0' --wk '1;1;1' --wv '1;1;1'", &["--wq", "[2, 3]", "nn.Linear", "transpose, [3, 2]"]),
    ("--x '1 0 0' --wq '1;1' --wk '1;1;1' --wv '1;1;1'", &["--wq", "[2, 1]", "3 columns of --x", "3 rows"]),
    ("--x '1 0' --context '1 0 0' --wq '1;1' --wk '1;1' --wv '1;1;1'", &["--wk", "[2, 1]", "3 columns of --context"]),
    ("--x '1 0' --wq '[1,1]' --wk '1;1' --wv '1;1'", &["--wq", "[2]", "[in, out]"]),
    ("--x '1 0' --wq '1 1;1 1' --wk '1;1' --wv '1;1'", &["--wk", "1 column (1 in shape [2, 1])", "[2, 2] of --wq", "same width"]),
    ("{X} --heads 3", &["--wq", "2 columns (shape [2, 2]) into 3 heads"]),
    ("{X} --kv-heads 2", &["--kv-heads", "2 with 1 query head (", "multiple"]),
    ("{X} --bq 1", &["--bq", "1 number ", "2 columns"]),
    ("{X} --bv '1 2 3'", &["--bv", "3 numbers", "2 columns"]),
    ("{X} --bk '1 2;3 4'", &["--bk", "[2, 2]", "list"]),
    ("{X} --bo '1 2'", &["--bo", "--wo"]),
    ("{X} --wo '1 2;3 4' --bo '1 2 3'", &["--bo", "3 numbers", "2 columns"]),
    ("{X} --wo '1 2 3'", &["--wo", "[1, 3]", "2 columns", "2 rows"]),
    ("{X} --wo '1 2;3 4;5 6'", &["--wo", "[3, 2]", "nn.Linear", "[2, 3]"]),
    ("{OK} --wo '1 2;3 4;5 6'", &["--wo", "[3, 2]", "nn.Linear"]),
    ("{OK} --bo '1 2'", &["--bo", "--wo"]),
    ("{X} --wo '1;1' --residual", &["--residual", "[1, 2, 1]", "[1, 2, 2]", "W_O"]),
    ("{OK} --residual", &["--residual", "--x"]),
    ("{OK} --wq '1 0;0 1'", &["--wq", "--x"]),
    ("--context '1 0'", &["--context", "--x"]),
    ("--init normal:0.02", &["--init", "--x"]),
    ("{OK} --dk 4", &["--dk", "--x"]),
    ("{X} --context '[[[1,0]],[[1,0]]]'", &["--context", "[2, 1, 2]", "[1, 2, 2]", "batch"]),
    ("{X} --init xavier", &["--init", "all given", "leave it out"]),
    ("{X} --dk 4", &["--dk", "--init"]),
    ("{X} --dv 4", &["--dv", "--init"]),
    ("--x '1 0' --init normal", &["--init", "\"normal\"", "normal:STD"]),
    ("--x '1 0' --init normal:0", &["--init", "\"normal:0\"", "above 0"]),
    ("--x '1 0' --init normal:x", &["--init", "above 0", "normal:0.02"]),
    ("--x '1 0' --init he:1", &["--init", "\"he:1\"", "xavier"]),
    ("--x '1 0' --init uniform:inf", &["--init", "uniform:inf", "finite"]),
    ("--x '1 0 1' --init xavier --heads 2", &["--dk", "3 columns of --x", "2 heads", "give a width"]),
    ("--x '1 0' --init xavier --dk 0", &["--dk", "\"0\"", "from 1"]),
    ("--x '1 0' --init xavier --wq '1;1' --dk 2", &["--dk", "2 with heads of 1 column in --wq"]),
    ("--x '1 0' --init xavier --wv '1;1' --dv 2", &["--dv", "2 with heads of 1 column in --wv"]),
    ("--x '1 0' --init xavier --dk 9999999999", &["--dk: weights and steps of 1 head with d_k = 9999999999", "GiB", "narrower ones with --dk"]),
    ("--x '1 0' --init xavier --heads 4294967296 --dk 4294967296", &["--dk", "4294967296 heads", "give fewer"]),
    ("{X} --past-k '[[[1,1]],[[1,1]]]' --past-v '[[[1,1]],[[1,1]]]'", &["--past-k", "batch 2"]),
    // Output.
    ("--format pdf", &["--format", "\"pdf\"", "text", "json"]),
    ("--format text --json", &["--json", "--format"]),
    ("-o a.tex --format html", &["-o", "a.tex with --format html"]),
    ("-o a.md --format text", &["-o", "a.md with --format text", "leave out --format"]),
    ("-o a.txt --format markdown", &["-o", "a.txt with --format markdown"]),
    ("-o a.npy", &["-o", "a.npy", ".safetensors"]),
    ("-o result", &["-o", "result", "without an ending", "--format"]),
    ("-o a.txt --json", &["-o", "a.txt with --format json", "leave out --format"]),
    ("-o a.json --format text", &["-o", "a.json", "--format"]),
    ("-o a.safetensors --format text", &["-o", "a.safetensors", "--format"]),
    ("-o nowhere/a.txt", &["-o", "nowhere/a.txt", "make the folder first"]),
    ("-o nowhere/b/c.json", &["-o", "nowhere/b/c.json", "make the folder first"]),
    ("-o good.npy/x.txt", &["-o", "good.npy/x.txt", "is a file, not a folder", "correct the path"]),
    ("-o {LONG}.txt", &["-o", "xxx", "too long", "choose a shorter one"]),
    ("--format text -o /dev/full", &["-o", "/dev/full", "full", "free some space"]),
    ("--q {LONG}.npy --k 1 --v 1", &["--q", "xxx", "no file"]),
    ("--q good.npy/x --k 1 --v 1", &["--q", "there is no file \"good.npy/x\""]),
    ("--q /dev/zero --k 1 --v 1", &["--q", "/dev/zero is a device, not a file"]),
    ("--q 1 --k 1 --v 1 --keep /dev/zero", &["--keep", "/dev/zero is a device"]),
    ("--q twice.json --k 1 --v 1", &["--q", "\"01\"", "needless 0"]),
    ("--q prose.txt --k 1 --v 1", &["--q", "prose.txt, line 1", "\"hello\" is not a number"]),
    ("--q repr.txt --k 1 --v 1", &["--q", "repr.txt, line 1", "\"tensor(…)\"", "numpy.save"]),
    ("-o folder.txt", &["-o", "folder.txt", "folder"]),
    ("--q good.npy --k 1 --v 1 -o good.npy", &["-o", "good.npy"]),
    ("--q same.json --k '1 0' --v 1 -o same.json", &["-o", "same.json", "input of --q", "another file"]),
    ("--width 39", &["--width", "\"39\"", "40 to 1000"]),
    ("--digits 18", &["--digits", "\"18\"", "0 to 17"]),
    ("--digits -1", &["--digits"]),
    ("--width 5", &["--width", "\"5\"", "40 to 1000"]),
    ("--lang de", &["--lang", "\"de\"", "en, zh"]),
    ("--color sometimes", &["--color", "\"sometimes\"", "auto, always, never"]),
    ("--row 2", &["--row", "2", "rows 0 to 1"]),
    ("--row 0,5", &["--row", "5", "2 queries"]),
    ("--row=2,", &["--row", "\"2,\"", "whole number from 0"]),
    ("--row 0,99999999999999999999", &["--row", "too large", "18446744073709551615"]),
    ("--row last", &["--row", "\"last\"", "whole number"]),
    // Too much.
    ("--q long.npy --k long.npy --v long.npy", &["[1, 1, 40000, 40000]", "GiB", "fewer"]),
    ("--q long.npy --k long.npy --v long.npy --json", &["[1, 1, 40000, 40000]", "GiB", "fewer"]),
];

fn prepare(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).expect("written");
    fs::create_dir(folder.join("folder")).expect("a folder");
    fs::create_dir(folder.join("folder.txt")).expect("a folder");
    write("empty.npy", b"");
    write(
        "model.pt",
        b"PK\x03\x04\x14\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\0\0data.pkl",
    );
    write("pickle.npy", b"\x80\x02}q\0X\x01\0\0\0aq\x01K\x01s.");
    write("gguf.npy", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0");
    write("good.npy", &npy_f32("(1, 1)", &[1.0]));
    write("short.npy", &npy_f32("(2, 2)", &[1.0]));
    write("flat.npy", &npy_f32("(4,)", &[1.0; 4]));
    write("five.npy", &npy_f32("(1, 1, 1, 1, 1)", &[1.0]));
    write("objects.npy", &npy("|O", "(1, 1)", &[0; 8]));
    write("complex.npy", &npy("<c8", "(1, 1)", &[0; 8]));
    write(
        "hollow.npy",
        &npy("<f4", "(1, 1152921504606846976, 0, 2)", &[]),
    );
    write(
        "big.npy",
        &npy("<i8", "(1, 1)", &9_007_199_254_740_993_i64.to_le_bytes()),
    );
    write("long.npy", &npy_f32("(40000, 1)", &[0.0; 40000]));
    write("two.json", b"{\"a\": [[1]], \"b\": [[2]]}");
    write("same.json", b"[[1, 0]]");
    write("twice.json", b"[[01, 0]]");
    write("prose.txt", b"hello");
    write("repr.txt", b"tensor([[1., 2.],\n        [3., 4.]])\n");
    write("broken.json", b"{\"a\": [[1,");
    write("ragged.csv", b"1,2\n1,2,3\n");
    write("text.csv", b"1,2\n3,x\n");
    write("latin.csv", b"1,2\n3,\xe9\n");
    write("noise.bin", &[0, 159, 146, 150, 7, 0, 1, 2, 3, 255, 0, 0]);
    let header = br#"{"w":{"dtype":"F64","shape":[2,2],"data_offsets":[0,32]}}"#;
    let mut short = (header.len() as u64).to_le_bytes().to_vec();
    short.extend(header);
    short.extend([0; 16]);
    write("short.safetensors", &short);
}

#[test]
fn every_bad_input_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let before = fs::read(folder.path().join("same.json")).expect("a file");
    let cases: Vec<(String, &[&str])> = CASES
        .iter()
        .map(|(line, expected)| {
            let line = line
                .replace("{OK}", OK)
                .replace("{X}", X)
                .replace("{LONG}", &"x".repeat(300));
            (line, *expected)
        })
        .collect();
    refusals("explain", folder.path(), &cases);
    assert_eq!(
        fs::read(folder.path().join("same.json")).expect("a file"),
        before
    );
}

#[test]
fn they_are_more_than_a_hundred_kinds() {
    let mut lines: Vec<&str> = CASES.iter().map(|(line, _)| *line).collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), CASES.len());
    assert!(CASES.len() >= 150, "{}", CASES.len());
}

#[test]
fn other_commands_refuse_too() {
    let cases: &[(&str, &[&str])] = &[
        (
            "exlain",
            &["exlain", "no such command", "did you mean explain"],
        ),
        ("frobnicate", &["frobnicate", "no such command", "--help"]),
        ("completions", &["SHELL", "missing", "--help"]),
        ("man \u{1b}[31m", &["<U+001B>[31m", "explain"]),
        ("completions tcsh", &["SHELL", "\"tcsh\"", "bash"]),
        ("man nothing", &["\"nothing\"", "explain"]),
        ("--wrong", &["--wrong", "no such option"]),
    ];
    for (line, expected) in cases {
        let ran = common::qkv(line);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{line}");
        for word in *expected {
            assert!(
                ran.err.contains(word),
                "{line}: {word:?} is missing in {}",
                ran.err
            );
        }
    }
}

#[test]
fn standard_input_is_read_once() {
    let line = words("explain --q - --k - --v 1");
    let ran = run_with(&std::env::temp_dir(), &line, b"1");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    for word in ["--k", "--q on standard input", "into a file"] {
        assert!(ran.err.contains(word), "{word:?} is missing in {}", ran.err);
    }
}

#[cfg(unix)]
#[test]
fn words_that_are_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let cases: [(&[&[u8]], &[&str]); 2] = [
        (
            &[b"--q", b"\xff\xfe.npy"],
            &["--q: \"<FF><FE>.npy\" is not UTF-8"],
        ),
        (
            &[b"--causal", b"--keep=a\xff"],
            &["--keep: \"a<FF>\" is not UTF-8"],
        ),
    ];
    for (words, expected) in cases {
        let output = common::command(&std::env::temp_dir())
            .arg("explain")
            .args(words.iter().map(|word| std::ffi::OsStr::from_bytes(word)))
            .output()
            .expect("runs");
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(2), &b""[..])
        );
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        for word in expected {
            assert!(err.contains(word), "{err}");
        }
        assert!(err.contains("give the file a name that is"), "{err}");
    }
}

/// The same words in every option: messages are short, of one line, and do nothing to a terminal.
#[test]
fn no_message_floods_or_acts() {
    let help = common::qkv("explain --help").out;
    let options: Vec<&str> = help
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--"))
        .filter_map(|rest| rest.split([' ', '[', '=']).next())
        .collect();
    assert!(options.len() > 45, "{options:?}");
    let list = vec!["1"; 30_000].join(",");
    let texts = [
        "\u{1b}[31mred\u{202e}\n\u{9b}2J",
        &"x".repeat(100_000),
        &list,
        &"[".repeat(50_000),
        "99999999999999999999999999",
        "1e-400",
        "",
    ];
    for option in options.iter().chain(&["output", "no-such-option"]) {
        for text in texts {
            let word = format!("--{option}={text}");
            let ran = run_with(&std::env::temp_dir(), &["explain".into(), word], b"");
            assert!(
                ran.err.chars().count() <= 2100,
                "--{option}: {}",
                ran.err.len()
            );
            let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!ran.err.chars().any(acts), "--{option}: {:?}", ran.err);
            assert!(ran.err.lines().count() <= 1, "--{option}: {}", ran.err);
            assert!(!ran.err.contains("\\u{"), "--{option}: {}", ran.err);
            assert!(matches!(ran.code, 0 | 2), "--{option}: {}", ran.code);
            assert_eq!(ran.code == 2, !ran.err.is_empty(), "--{option}={text:.40}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_says_what_to_do() {
    let full = fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let output = common::command(&std::env::temp_dir())
        .arg("explain")
        .stdout(full)
        .output()
        .expect("runs");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(
        err.contains("standard output: the disk or device is full; free some space"),
        "{err}"
    );
}
