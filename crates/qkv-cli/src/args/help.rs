//! What the help says after the options. Every example runs as it stands (a test runs them, in
//! this order and in one folder).

/// After `qkv -h`.
pub const SHORT: &str = "qkv explain shows the built-in example; qkv --help says more.";

/// After `qkv --help`.
pub const MAIN: &str = "\
Examples:
  The worked calculation of two tokens:
    $ qkv explain
  Your own queries, keys and values:
    $ qkv explain --q \"1 0; 0 1\" --k \"1 1; 0 1\" --v \"2 0; 0 4\" --causal
  All options and more examples:
    $ qkv explain --help
  The same over files, fast:
    $ qkv run --q \"1 0; 0 1\" --k \"1 1; 0 1\" --v \"2 0; 0 4\" --causal \\
        -o out.safetensors
  How fast this machine is:
    $ qkv bench --case tiny-2

Exit status: 0, or 2 after an error, which standard error explains.";

/// After `qkv check -h`.
pub const CHECK_SHORT: &str =
    "ARRAY is a literal (\"1 0; 0 1\"), a file (a.npy, a.npz:name, …) or -.";

/// After `qkv check --help`.
pub const CHECK: &str = "\
Examples:
  Weights that were worked out by hand, and are right to the digits typed:
    $ qkv check --q \"1 0; 0 1\" --k \"1 0; 0 1\" --v \"2 0; 0 4\" \\
        --weights \"0.67 0.33; 0.33 0.67\"

Exit status: 0 where the numbers are right or only rounded, 1 where they
differ or nothing can be decided, 2 after an error.";

/// After `qkv explain -h`.
pub const EXPLAIN_SHORT: &str =
    "ARRAY is a literal (\"1 0; 0 1\"), a file (a.npy, a.npz:name, …) or -; --help says more.";

/// After `qkv explain --help`.
pub const EXPLAIN: &str = "\
Examples:
  The built-in example, and the same in Chinese with six decimals:
    $ qkv explain
    $ qkv explain --lang zh --digits 6
  Literals; two queries against three keys, where a causal mask needs its
  alignment:
    $ qkv explain --q \"1 0; 0 1\" --k \"1 0; 0 1; 1 1\" --v \"1; 10; 100\" \\
        --causal bottom-right
  From tokens, with weights drawn from a seed:
    $ qkv explain --x \"1 0.5 -0.2 0.1; 0.3 -0.4 0.8 1.2\" --init normal:0.02 \\
        --seed 7 --dk 4 --dv 4
  Four query heads that share two key and value heads, rotary positions,
  residual:
    $ qkv explain --x \"1 0 0 1 2 0 1 0; 0 1 0 0 0 1 0 2\" --init xavier \\
        --heads 4 --kv-heads 2 --position rotary --residual --row 1
  A window of the own key and two before it, and two packed documents:
    $ qkv explain --q \"0;0;0;0;0\" --k \"0;0;0;0;0\" --v \"1;2;3;4;5\" --causal \\
        --window 2,0 --documents 2,3
  For a class: in Markdown, as a page for a browser, a phone or a printer,
  and in LaTeX:
    $ qkv explain --causal -o attention.md
    $ qkv explain --causal -o attention.html
    $ qkv explain --causal -o attention.tex
  What common mistakes would have given, beside the right numbers:
    $ qkv explain --q \"1 0; 2 1; 0 1\" --k \"1 0; 0 1; 1 1\" \\
        --v \"1 0; 0 2; 3 1\" --causal --contrast
  Tokens with names: what each sees, and what it is trained to predict:
    $ qkv explain --x \"1 0; 0 1; 1 1\" --init xavier --causal \\
        --tokens \"the cat sat\" --next-token
    $ qkv explain --tokens '[\"New York\", \"?\"]'
  Another order of the tokens, which a causal mask does not forgive:
    $ qkv explain --q \"1 0; 2 1; 0 1\" --k \"1 0; 0 1; 1 1\" \\
        --v \"1 0; 0 2; 3 1\" --permute 2,0,1
    $ qkv explain --permute 1,0 --causal
  A step of decoding, from tokens or with a cache of your own:
    $ qkv explain --x \"1 0; 0 1; 1 1; 2 0\" --init xavier --causal --decode
    $ qkv explain --q \"1 1\" --past-k \"1 0; 0 1\" --past-v \"2 0; 0 4\" \\
        --k \"1 1\" --v \"6 6\"
  An exercise of drawn numbers; the key is sheet.key.md:
    $ qkv explain --exercise random --seed 7 -o sheet.md
  Every step into a file, and arrays out of one:
    $ qkv explain -o steps.safetensors
    $ qkv explain --q steps.safetensors:q --k steps.safetensors:k \\
        --v steps.safetensors:v
  The gradient of the first output number, back to Q, K and V:
    $ qkv explain --backward --grad-output \"1 0; 0 0\"
  For programs, and from standard input:
    $ echo \"1 0; 0 1\" | qkv explain --q - --k \"1 0; 0 1\" --v \"2 0; 0 4\" --json

Exit status: 0, or 2 after an error, which standard error explains.";

/// After `qkv run -h`.
pub const RUN_SHORT: &str =
    "ARRAY is a file (a.npy, a.npz:name, a.safetensors:name, …), a literal or -; --help says more.";

/// After `qkv run --help`.
pub const RUN: &str = "\
Examples:
  Make some arrays to try, then compute their attention into a file:
    $ qkv explain --x \"1 0 0 1; 0 1 0 1; 1 1 0 0\" --init xavier --heads 2 \\
        -o steps.safetensors
    $ qkv run --q steps.safetensors:q --k steps.safetensors:k \\
        --v steps.safetensors:v --causal -o out.safetensors --lse --weights
  The output alone as npy; a summary where no file is named; all numbers as
  JSON:
    $ qkv run --q steps.safetensors:q --k steps.safetensors:k \\
        --v steps.safetensors:v -o out.npy
    $ qkv run --q steps.safetensors:q --k steps.safetensors:k \\
        --v steps.safetensors:v
    $ qkv run --q \"1 0; 0 1\" --k \"1 0; 0 1\" --v \"2 0; 0 4\" --lse --json
  The gradients of Σ output·grad-output:
    $ qkv run --q steps.safetensors:q --k steps.safetensors:k \\
        --v steps.safetensors:v --causal --backward \\
        --grad-output steps.safetensors:output -o grads.safetensors
  Heads side by side in each token's row, and a window, on one thread:
    $ qkv run --q \"1 0 2 0; 0 1 0 2\" --k \"1 0 2 0; 0 1 0 2\" --v \"1 2; 3 4\" \\
        --heads 2 --causal --window 512,0 --threads 1

Number formats: f32 and f64 are computed as such, f16 and bf16 in f32, rounded
to the nearest at the end, ties to even; the path avx512bf16 multiplies bf16
as it is and rounds weights to it. q, k, v and cached ones have one format;
numbers typed as text (a literal, CSV, JSON) and whole numbers take that of
the others, and are f64 among themselves. --bias may have any.

Results: output has the axes, the layout and the number format of q. lse, the
logarithm of the sum of exp(score) over the kept keys, without the sink, is
[B,H,L_q], and weights, before dropout, are [B,H,L_q,L_k], both without the
axes that q does not have; lse is in f32, or f64 for f64, weights in the
format of q. For one instruction set the same numbers give the same bits, for
any number of threads, alone or in a batch, and for any number of queries at
once. grad_q, grad_k and grad_v have the axes, the layout and the number
format of q, k and v, the cached ones first; grad_bias has the shape of
--bias, summed over what it repeats, and grad_sinks is [H]. Their bits do not
depend on threads, nor, for q, k and v, on the batch.

Memory: weights are written as they are computed and are never whole in
memory. A mapped file must not be changed while it is used: if that is
noticed, nothing is written; if it becomes shorter, the system ends the
command.

Exit status: 0, 2 after an error, which standard error explains, or 130 after
Ctrl-C.";

/// After `qkv trace -h`.
pub const TRACE_SHORT: &str = "qkv trace --help has examples.";

/// After `qkv trace --help`.
pub const TRACE: &str = "\
Examples:
  Weights from elsewhere, here of one head over three tokens:
    $ qkv trace --weights \"1 0 0; 0.3 0.7 0; 0.6 0.3 0.1\" \\
        --tokens \"the cat sat\"
  Kept as a trace, shown again, as a page for a browser, and one head as a
  drawing:
    $ qkv trace --weights \"1 0 0; 0.3 0.7 0; 0.6 0.3 0.1\" \\
        --tokens \"the cat sat\" -o t.safetensors
    $ qkv trace t.safetensors --html map.html
    $ qkv trace t.safetensors --layer 0 --head 0 --svg head.svg
  Which head looks at the token before, and which from \"sat\" at \"cat\":
    $ qkv trace t.safetensors --heads-by \"previous,sat>cat\"
  For programs:
    $ qkv trace t.safetensors --json

Weights are not an explanation: they say from where a head took values, not
why a model answers as it does.

Exit status: 0, or 2 after an error, which standard error explains, or 130
after Ctrl-C.";

/// After `qkv bench -h`.
pub const BENCH_SHORT: &str = "qkv bench --help says what each column means.";

/// After `qkv bench --help`.
pub const BENCH: &str = "\
Examples:
  Two short cases, on one thread and on two:
    $ qkv bench --case tiny-2,tiny-16 --threads 1,2 --repeat 50
  For programs, one object a line:
    $ qkv bench --case tiny-2 --repeat 50 --json
  The backward pass:
    $ qkv bench --mode backward --case tiny-16 --repeat 50
  The whole suite beside others, kept with machine and date in a folder:
    qkv bench --threads 1,2 --mask none,bool,float \\
        --against torch,onnxruntime,openvino -o runs/

ms is the median wall time of a call, cpu ms the CPU time of its busiest
thread: equal on a quiet machine, and the better figure on one that others
use. GFLOP/s, share and ratios go by it. The share is that of the limit that
rules: fma, multiply-adds as fast as this machine was measured to do them;
mem, q, k, v, output and mask read once as fast as it was measured to read;
neither where a call takes microseconds. extra is how far a fresh process
grows over one call, as the system counts it: to within some hundred KiB. JSON
has the same as ms, cpu_ms, gflops, share, limit (fma, bandwidth, none),
extra_bytes and peers; cores are those that the process may use, which more
threads than that share.

Exit status: 0, 2 after an error, which standard error explains, or 130 after
Ctrl-C.";
