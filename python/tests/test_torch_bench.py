"""python -m minrnn.bench, on almost nothing."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch_support  # noqa: F401  (skips without PyTorch)


class Bench(unittest.TestCase):
    def test_report(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "found.json")
            done = subprocess.run([sys.executable, "-m", "minrnn.bench", "--device", "cpu", "--lengths", "8", "--batch",
                                   "2", "--seconds", "0", "--json", path], capture_output=True, text=True, timeout=900)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        rows = {row["form"]: row for row in found["training"]}
        self.assertEqual(rows["minrnn MinGRU"]["beside_minrnn"], 1)
        for name in ("minrnn MinGRU", "minGRU, log-space, eager", "nn.GRU"):
            self.assertTrue(rows[name]["ms"] > 0 and rows[name]["bytes"] > 0 and rows[name]["rounds"] == 3)
            self.assertIn(name, done.stdout)
        # pre-activations and output of 2·8 tokens; the eager code keeps every intermediate result
        self.assertEqual(rows["minrnn MinGRU"]["bytes"], 2 * 8 * 384 * 4 * 3)
        self.assertGreater(rows["minGRU, log-space, eager"]["bytes"], 3 * rows["minrnn MinGRU"]["bytes"])
        self.assertTrue(all(row["us"] > 0 for row in found["overhead"]) and found["left_out"] is not None)


if __name__ == "__main__":
    unittest.main()
