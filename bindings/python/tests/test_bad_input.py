"""What nobody should give: refused with a message that helps, and never the end of the process."""

import copy
import ctypes

import numpy
import pytest
from conftest import numbers

import qkv

MANY = 1 << 57


def claimed(*shape, dtype=numpy.float32):
    """An array of any size over one number."""
    return numpy.lib.stride_tricks.as_strided(numpy.zeros(1, dtype), shape, (0,) * len(shape))


def grown(tokens):
    cache = qkv.Cache(1, 1, 4)
    cache.append(claimed(1, 1, tokens, 4), claimed(1, 1, tokens, 4))


TOO_MUCH = {
    "rows": lambda x: qkv.attention(claimed(MANY, 4), x, x),
    "columns": lambda x: qkv.attention(x, x, claimed(3, MANY)),
    "weights": lambda x: qkv.attention(
        claimed(1 << 33, 4), claimed(1 << 33, 4), claimed(1 << 33, 0), return_weights=True
    ),
    "backward": lambda x: qkv.attention_backward(
        claimed(MANY, 4), claimed(MANY, 4), x, x, claimed(MANY, 4), claimed(MANY, dtype=float)
    ),
    "sinks": lambda x: qkv.attention(x, x, x, sinks=claimed(MANY, dtype=float)),
    "merge": lambda x: qkv.merge([(claimed(MANY, 4), claimed(MANY, dtype=float))]),
    "rotary": lambda x: qkv.rotary(claimed(MANY, 4)),
    "steps": lambda x: qkv.steps(claimed(MANY, 4), x, x),
    "explain": lambda x: qkv.explain(claimed(MANY, 4), x, x),
    "check": lambda x: qkv.check(claimed(MANY, 4), x, x, output=x),
    "layer": lambda x: qkv.MultiHeadAttention(x.T, x.T, x.T, heads=1)(claimed(MANY, 4)),
    "reserve": lambda x: qkv.Cache(1, 1, 4).reserve(1 << 61),
    "append": lambda x: grown(MANY),
}


@pytest.mark.parametrize("call", TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_than_there_is(rng, call):
    with pytest.raises(MemoryError, match="GiB"):
        call(numbers(rng, 3, 4, dtype=numpy.float32))


def test_an_lse_of_another_size_is_not_read(rng):
    q = numbers(rng, 3, 4)
    with pytest.raises(ValueError, match="lse"):
        qkv.attention_backward(q, q, q, q, q, claimed(MANY, dtype=float))
    with pytest.raises(ValueError, match="lse"):
        qkv.merge([(q, claimed(MANY, dtype=float))])


def test_masked_arrays_are_refused(rng):
    """NumPy's masked arrays are arrays, and what they hide would be read."""
    q = numbers(rng, 3, 4)
    hidden = numpy.ma.masked_array(q, q > 0)
    for given in [(hidden, q, q), (q, hidden, q), (q, q, hidden)]:
        with pytest.raises(TypeError, match="masked.*keep="):
            qkv.attention(*given)
    with pytest.raises(TypeError, match="masked"):
        qkv.attention(q, q, q, out=numpy.ma.zeros((3, 4)))
    # Other classes of arrays mean the same numbers.
    assert (qkv.attention(q.view(numpy.recarray), q, q) == qkv.attention(q, q, q)).all()


class Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class Managed(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Claims:
    """A library that says about its memory whatever it is told to."""

    def __init__(self, shape=(3, 4), strides=None, rank=None, data=True, **fields):
        self.memory = numpy.arange(64, dtype=numpy.float32)
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.managed = Managed(
            data=self.memory.ctypes.data if data else None,
            device=Device(1, 0),
            rank=len(shape) if rank is None else rank,
            **{"code": 2, "bits": 32, "lanes": 1, **fields},
        )
        self.managed.shape = self.shape
        if strides is not None:
            self.strides = (ctypes.c_int64 * len(strides))(*strides)
            self.managed.strides = self.strides
        self.name = b"dltensor"

    def __dlpack__(self, stream=None):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), self.name, None)


WRONG = [
    (dict(data=False), TypeError, "memory is not there"),
    (dict(rank=-1), ValueError, "-1 axes"),
    (dict(rank=100_000), ValueError, "100000 axes"),
    (dict(shape=(-3, 4)), ValueError, "-3"),
    (dict(shape=(1 << 32, 1 << 32)), ValueError, "outside"),
    (dict(shape=(1 << 62, 1 << 62)), ValueError, "outside"),
    (dict(strides=(1 << 61, 1)), ValueError, "outside"),
    (dict(strides=(-(1 << 63), 1)), ValueError, "outside"),
    (dict(offset=(1 << 64) - 4), ValueError, "offset"),
    (dict(data=False, offset=4), TypeError, "memory is not there"),
    (dict(code=8, bits=8), TypeError, "DLPack code 8"),
    (dict(lanes=2), TypeError, "float32x2"),
]


@pytest.mark.parametrize("claims, error, words", WRONG, ids=lambda value: str(value)[:40])
def test_wrong_claims_about_memory(rng, claims, error, words):
    q = numbers(rng, 3, 4, dtype=numpy.float32)
    assert qkv.attention(Claims(), q, q).shape == (3, 4)
    with pytest.raises(error, match=words):
        qkv.attention(Claims(**claims), q, q)


def test_no_capsule(rng):
    q = numbers(rng, 3, 4, dtype=numpy.float32)
    used = Claims()
    used.name = b"used_dltensor"
    with pytest.raises(TypeError, match="q: its DLPack capsule"):
        qkv.attention(used, q, q)
    used.__class__ = type("Wrong", (Claims,), {"__dlpack__": lambda self, stream=None: 3})
    with pytest.raises(TypeError, match="q: .*capsule"):
        qkv.attention(used, q, q)


OTHERS = [
    ("is_causal", "causal="),
    ("attn_mask", "keep="),
    ("mask", "drop="),
    ("key_padding_mask", "kv_lengths="),
    ("dropout_p", "dropout="),
    ("enable_gqa", "no option"),
    ("softmax_scale", "scale="),
    ("window_size", "window="),
    ("alibi_slopes", "alibi="),
    ("s_aux", "sinks="),
    ("need_weights", "return_weights=True"),
    ("anything", "options are scale"),
]


@pytest.mark.parametrize("keyword, words", OTHERS)
def test_keywords_of_other_libraries(rng, keyword, words):
    """qkv.attention itself refuses them too, in Python's words: looking for more would cost each call."""
    q = numbers(rng, 3, 4)
    for call in (qkv.steps, qkv.explain, qkv.check):
        with pytest.raises(TypeError, match=words) as raised:
            call(q, q, q, **{keyword: None})
        assert f"'{keyword}'" in str(raised.value)


def test_numpys_truth_values(rng):
    q = numbers(rng, 3, 4)
    causal = qkv.attention(q, q, q, causal=True)
    assert (qkv.attention(q, q, q, causal=numpy.True_) == causal).all()
    assert (qkv.attention(q, q, q, causal=numpy.False_) == qkv.attention(q, q, q)).all()
    assert (qkv.attention(q, q, q, window=[None, 0], causal=0) == causal).all()
    with pytest.raises(TypeError, match="scale: a bool"):
        qkv.attention(q, q, q, scale=numpy.True_)
    single = numpy.ones((2, 3), numpy.float32)
    for scale in (1e39, 1e-50):
        with pytest.raises(ValueError, match="^scale: 1e.* in single precision"):
            qkv.attention(single, single, single, scale=scale)
        assert numpy.isfinite(qkv.attention(*[single.astype(float)] * 3, scale=scale)).all()
    with pytest.raises(ValueError, match="scale: an int beyond"):
        qkv.attention(q, q, q, scale=10**400)
    with pytest.raises(TypeError, match="an int is no array"):
        qkv.attention(3, q, q)
    with pytest.raises(TypeError, match="dtype=bool"):
        qkv.attention(q, q, q, keep=[[True] * 3])


@pytest.mark.parametrize("parts, words", [(None, "None"), ([1], "an int"), ([(1,)], "tuple")])
def test_merge_of_no_pairs(parts, words):
    with pytest.raises(TypeError, match=f"parts: .*{words}.*pairs"):
        qkv.merge(parts)


def test_rotary_of_no_numbers(rng):
    q = numbers(rng, 3, 4)
    with pytest.raises(TypeError, match="base: a str"):
        qkv.rotary(q, base="10000")
    with pytest.raises(ValueError, match="positions"):
        qkv.rotary(q, 1 << 63)
    with pytest.raises(TypeError, match="scaling: an int"):
        qkv.rotary(q, scaling={"rope_type": 3})


def test_yarn(rng):
    """Slow pairs divided by factor, fast ones kept, all of it times attention_factor."""
    x = numpy.ones((4, 64))
    table = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    magnitude = 0.1 * numpy.log(4.0) + 1.0
    plain, found = qkv.rotary(x), qkv.rotary(x, scaling=table) / magnitude
    assert numpy.abs(found[:, 0] - plain[:, 0]).max() < 1e-14
    assert numpy.abs(found[:, 31] - qkv.rotary(x, scaling=4.0)[:, 31]).max() < 1e-14
    given = qkv.rotary(x, scaling={**table, "attention_factor": 1.0})
    assert numpy.abs(given - found).max() < 1e-14


LAYERS = [
    (dict(heads=0), "heads"),
    (dict(heads=3), "wq: 4 columns"),
    (dict(heads=4, kv_heads=3), "multiple"),
    (dict(wk=numpy.eye(4, 6)), "wk: 6 columns"),
    (dict(wo=numpy.eye(3)), "wo: 3 rows"),
    (dict(bq=numpy.ones(3)), "bq: shape"),
    (dict(bo=numpy.ones((1, 4)), wo=numpy.eye(4)), "bo: shape"),
]


@pytest.mark.parametrize("wrong, words", LAYERS)
def test_layers_that_do_not_fit_are_not_made(wrong, words):
    right = dict(wq=numpy.eye(4), wk=numpy.eye(4), wv=numpy.eye(4), heads=2)
    with pytest.raises(ValueError, match=words):
        qkv.MultiHeadAttention(**{**right, **wrong})


def test_a_state_of_arrays(rng):
    """As safetensors gives it to NumPy, without torch."""
    packed, out = numbers(rng, 12, 4), numbers(rng, 4, 4)
    x = numbers(rng, 3, 4)
    layer = qkv.MultiHeadAttention.from_torch({"in_proj_weight": packed, "out_proj.weight": out}, 2)
    same = qkv.MultiHeadAttention(*(packed[at : at + 4].T for at in (0, 4, 8)), out.T, heads=2)
    assert (layer(x) == same(x)).all()
    with pytest.raises(ValueError, match="11 rows"):
        qkv.MultiHeadAttention.from_torch({"in_proj_weight": packed[1:], "out_proj.weight": out}, 2)
    with pytest.raises(TypeError, match="state_dict"):
        qkv.MultiHeadAttention.from_torch(None, 2)
    with pytest.raises(TypeError, match="bq: a list"):
        qkv.MultiHeadAttention(numpy.eye(4), numpy.eye(4), numpy.eye(4), heads=2, bq=[0.0] * 4)


def test_copies_of_caches(rng):
    cache = qkv.Cache(1, 2, 4, dtype="float64")
    cache.append(numbers(rng, 1, 2, 3, 4), numbers(rng, 1, 2, 3, 4))
    for copied in (cache.copy(), copy.copy(cache), copy.deepcopy(cache)):
        assert (copied.k == cache.k).all() and (copied.v == cache.v).all()
        copied.append(cache.k, cache.v)
        assert (len(copied), len(cache)) == (6, 3)


def test_a_cache_that_grows_while_a_call_is_prepared(rng):
    """The weights are those of the keys that were there when it was computed."""
    cache = qkv.Cache(1, 1, 4)
    token = numbers(rng, 1, 1, 1, 4, dtype=numpy.float32)
    cache.append(token, token)

    class Growing:
        def __dlpack__(self, **keywords):
            cache.append(token, token)
            return token.__dlpack__(**keywords)

    output, weights = cache.attention(Growing(), return_weights=True)
    assert weights.shape == (1, 1, 1, 2) and numpy.abs(weights.sum() - 1) < 1e-6
