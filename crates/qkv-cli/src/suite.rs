//! The suite of `qkv bench`: shapes that people run attention on.

/// One shape, with what belongs to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name in `--case`.
    pub name: &'static str,
    /// B, H, H_kv, L_q, L_k, d_k, d_v.
    pub shape: [usize; 7],
    /// Whether later keys are hidden.
    pub causal: bool,
    /// Keys seen before the own position, if not all.
    pub back: Option<usize>,
    /// Whether keys and values lie in a [`qkv::Cache`].
    pub cache: bool,
}

/// The suite, in the order of its table.
pub const CASES: &[Case] = &[
    full("encoder-long", [1, 12, 12, 2048, 2048, 64, 64]),
    causal("prefill-1k", [1, 32, 8, 1024, 1024, 128, 128]),
    causal("prefill-4k", [1, 8, 2, 4096, 4096, 128, 128]),
    causal("long-16k", [1, 2, 2, 16384, 16384, 64, 64]),
    full("bert-short", [8, 12, 12, 128, 128, 64, 64]),
    full("vision", [1, 12, 12, 197, 197, 64, 64]),
    full("cross", [1, 8, 8, 77, 4096, 40, 40]),
    full("cross-img", [1, 8, 8, 4096, 77, 40, 40]),
    Case {
        back: Some(512),
        ..causal("window-4k", [1, 8, 2, 4096, 4096, 128, 128])
    },
    causal("mla-1k", [1, 16, 16, 1024, 1024, 192, 128]),
    full("decode-1", [1, 32, 8, 1, 4096, 128, 128]),
    full("decode-batch", [16, 32, 8, 1, 2048, 128, 128]),
    cached("decode-1-cache", [1, 32, 8, 1, 4096, 128, 128]),
    cached("decode-batch-cache", [16, 32, 8, 1, 2048, 128, 128]),
    full("tiny-2", [1, 1, 1, 2, 2, 2, 2]),
    full("tiny-16", [1, 4, 4, 16, 16, 32, 32]),
];

/// Shapes that people reported as slow or large elsewhere, measured where they are named.
pub const FAULTS: &[Case] = &[
    full("faults-b034", [1, 8, 8, 300, 300, 32, 32]),
    full("faults-b077", [1, 4, 4, 512, 512, 32, 32]),
    full("faults-b079", [1, 25, 25, 1024, 1024, 64, 64]),
    causal("faults-b079-causal", [1, 25, 25, 1024, 1024, 64, 64]),
    full("faults-b081", [1, 8, 8, 1, 16384, 64, 64]),
    Case {
        back: Some(15),
        ..causal("faults-b084", [1, 1, 1, 8192, 8192, 64, 64])
    },
];

const fn full(name: &'static str, shape: [usize; 7]) -> Case {
    Case {
        name,
        shape,
        causal: false,
        back: None,
        cache: false,
    }
}

const fn cached(name: &'static str, shape: [usize; 7]) -> Case {
    Case {
        cache: true,
        ..full(name, shape)
    }
}

const fn causal(name: &'static str, shape: [usize; 7]) -> Case {
    Case {
        causal: true,
        ..full(name, shape)
    }
}

impl Case {
    /// Shape of q.
    pub fn q(&self) -> [usize; 4] {
        let [b, h, _, l_q, _, d_k, _] = self.shape;
        [b, h, l_q, d_k]
    }

    /// Shape of k.
    pub fn k(&self) -> [usize; 4] {
        let [b, _, h_kv, _, l_k, d_k, _] = self.shape;
        [b, h_kv, l_k, d_k]
    }

    /// Shape of v.
    pub fn v(&self) -> [usize; 4] {
        let [b, _, h_kv, _, l_k, _, d_v] = self.shape;
        [b, h_kv, l_k, d_v]
    }

    /// Shape of the output.
    pub fn output(&self) -> [usize; 4] {
        let [b, h, _, l_q, _, _, d_v] = self.shape;
        [b, h, l_q, d_v]
    }

    /// Shape of a mask: the same for all batch entries and heads.
    pub fn mask(&self) -> [usize; 2] {
        let [_, _, _, l_q, l_k, _, _] = self.shape;
        [l_q, l_k]
    }

    /// Whether anybody computes gradients of it: decoding has none.
    pub fn is_trained(&self) -> bool {
        let [_, _, _, l_q, ..] = self.shape;
        l_q > 1 && !self.cache
    }
}
