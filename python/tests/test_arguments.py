"""What the checks of arguments let pass, at their limits, and that they do so without a warning."""
import json
import unittest
import warnings

import numpy as np

import minrnn
from minrnn.arrays import count, flag, real, settings_as_text, whole


class Arguments(unittest.TestCase):
    def test_limits_belong_to_what_is_allowed(self):
        self.assertEqual([count(x, "n", 1, 5) for x in (1, 5, np.int8(5))], [1, 5, 5])
        for wrong in 0, 6, True, 1.0:
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^n = .*: must be a whole number, from 1 to 5$"):
                count(wrong, "n", 1, 5)
        for limits, sentence in (((1,), "1 or more$"), ((1, 2**31 - 1), "1 or more$"), ((1, 7), "from 1 to 7$")):
            with self.assertRaisesRegex(minrnn.InvalidArgument, sentence):
                count(0, "n", *limits)

    def test_masks_without_a_masked_number(self):
        x = np.ma.array(np.arange(3), mask=[0, 0, 0])
        self.assertEqual((whole(x, "x").tolist(), real(x, "x").tolist()), ([0, 1, 2], [0.0, 1.0, 2.0]))

    def test_nothing_is_said_beside_the_exception(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(np.isinf(real([1e300], "x"))[0])
            for wrong in [np.nan], [np.inf], [1e30]:
                with self.assertRaisesRegex(minrnn.InvalidArgument, r"^x\[0\] = "):
                    whole(wrong, "x")

    def test_settings_become_text(self):
        self.assertEqual(settings_as_text({"a_b_c": []}), {"a-b-c": "[]"})
        self.assertEqual(json.loads(settings_as_text({"vocab": ["é", "🦀"]})["vocab"]), ["é", "🦀"])
        for wrong in [b"a"], [object()], [1j]:
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^vocab: "):
                minrnn.Model(vocab=wrong)

    def test_flags(self):
        for yes in True, 1, np.True_, np.int64(1):
            self.assertIs(flag(yes, "x"), True)
        for no in False, 0, None, np.False_, np.uint8(0):
            self.assertIs(flag(no, "x"), False)


if __name__ == "__main__":
    unittest.main()
