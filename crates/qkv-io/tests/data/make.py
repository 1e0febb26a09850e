"""Writes the fixtures beside this file: numpy's own bytes, kept so that no test needs numpy."""
import io, os
import ml_dtypes, numpy as np
from numpy.lib import format as npf

here = os.path.dirname(os.path.abspath(__file__))
at = lambda name: os.path.join(here, name)
six = np.arange(1, 7).reshape(2, 3)

for code in ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "|i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8",
             "|u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8"]:
    for order in "CF":
        side = {"<": "le", ">": "be", "|": "le"}[code[0]]
        np.save(at(f"{code[1:]}_{side}_{order.lower()}.npy"), np.asarray(six.astype(code), order=order))
for order in "CF":
    np.save(at(f"b1_le_{order.lower()}.npy"), np.asarray(six % 2 == 1, order=order))
np.save(at("scalar.npy"), np.float64(2.5))
np.save(at("empty.npy"), np.zeros((0, 3), np.float32))
np.save(at("rank5_f.npy"), np.asfortranarray(np.arange(24, dtype=np.float32).reshape(1, 2, 3, 2, 2)))
for version in [(2, 0), (3, 0)]:
    with open(at(f"version{version[0]}.npy"), "wb") as f:
        npf.write_array(f, six.astype("<f4"), version=version)
np.save(at("bfloat16.npy"), six.astype(ml_dtypes.bfloat16))
np.save(at("float8.npy"), six.astype(ml_dtypes.float8_e4m3fn))
np.save(at("object.npy"), np.array([[1], [2, 3]], dtype=object), allow_pickle=True)
np.save(at("complex.npy"), six.astype("<c8"))
np.save(at("text.npy"), np.array(["a", "b"]))
np.save(at("dates.npy"), np.array(["2024-01-01"], dtype="<M8[D]"))
np.save(at("record.npy"), np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f4")]))
np.savez(at("one.npz"), q=six.astype("<f4"))
np.savez(at("stored.npz"), q=six.astype("<f4"), mask=six > 3)
np.savez_compressed(at("deflated.npz"), q=np.asfortranarray(six.astype(">f8")), mask=six > 3)
np.savetxt(at("savetxt.txt"), six / 7, header="written by savetxt")
