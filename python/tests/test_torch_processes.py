"""Forked workers, several processes, threads, and the same bits each time."""
import os
import subprocess
import sys
import tempfile
import unittest

from torch_support import arguments, torch

from minrnn.torch import MinGRU, cell


class Rows(torch.utils.data.Dataset):
    """A data set whose worker processes run a layer."""

    def __init__(self):
        torch.manual_seed(1)
        self.module = MinGRU(3, 4, batch_first=True)
        self.x = torch.randn(8, 300, 3)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.module(self.x[i:i + 1])[0][0]


def big_step():
    x, weight, bias, h0, _ = arguments("minlstm", B=5, T=3000, D=16, H=40, dtype=torch.float32)
    h, last = cell(x, weight, bias, h0, kind="minlstm")
    return [h, last, *torch.autograd.grad(h.square().sum() + last.sum(), (x, weight, bias, h0))]


def fingerprint():
    import hashlib
    made = hashlib.sha256()
    for tensor in big_step():
        made.update(tensor.detach().contiguous().numpy().tobytes())
    return made.hexdigest()


def train_in_parallel(rank, address, folder):
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=2)
    module = torch.nn.parallel.DistributedDataParallel(MinGRU(3, 4, 2, batch_first=True))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    x = torch.randn(4, 6, 3)
    for _ in range(3):
        optimizer.zero_grad()
        module(x[2 * rank:2 * rank + 2])[0].square().mean().backward()
        optimizer.step()
    torch.save(module.module.state_dict(), os.path.join(folder, f"{rank}.pt"))
    torch.distributed.destroy_process_group()


class Processes(unittest.TestCase):
    def test_forked_workers(self):
        rows = Rows()
        big_step()  # the threads of this process are alive
        loader = torch.utils.data.DataLoader(rows, batch_size=2, num_workers=2, multiprocessing_context="fork",
                                             timeout=120)
        got = torch.cat(list(loader))
        self.assertTrue(torch.equal(got, torch.stack([rows[i] for i in range(len(rows))])))

    def test_two_processes_train_one_model(self):
        if not torch.distributed.is_available():
            self.skipTest("this PyTorch has no torch.distributed: training in parallel was not tested")
        with tempfile.TemporaryDirectory() as folder:
            address = os.path.join(folder, "meet")
            torch.multiprocessing.spawn(train_in_parallel, (address, folder), nprocs=2)
            one, two = (torch.load(os.path.join(folder, f"{rank}.pt")) for rank in (0, 1))
        torch.manual_seed(1)
        alone = MinGRU(3, 4, 2, batch_first=True)
        optimizer = torch.optim.SGD(alone.parameters(), 0.1)
        x = torch.randn(4, 6, 3)
        for _ in range(3):
            optimizer.zero_grad()
            alone(x)[0].square().mean().backward()
            optimizer.step()
        for name, p in alone.state_dict().items():
            self.assertTrue(torch.equal(one[name], two[name]))
            self.assertTrue(torch.allclose(one[name], p, rtol=1e-5, atol=1e-6), name)


class Bits(unittest.TestCase):
    def test_the_same_each_time(self):
        first = big_step()
        for _ in range(3):
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, big_step())))

    def test_the_same_for_any_number_of_threads(self):
        places = os.pathsep.join(os.path.abspath(place) for place in sys.path)  # PYTHONPATH may be relative
        code = "import minrnn.contexts as c, minrnn.torch.ops as o; n = {}; o.context = lambda d: c.context(d, n); " \
               "import test_torch_processes as t; print(t.fingerprint())"
        seen = set()
        for threads in (1, 2, 5):
            done = subprocess.run([sys.executable, "-c", code.format(threads)], capture_output=True, text=True,
                                  check=True, timeout=300, env={**os.environ, "PYTHONPATH": places})
            seen.add(done.stdout.strip())
        self.assertEqual(len(seen), 1, seen)

    def test_many_threads_at_once(self):
        from concurrent.futures import ThreadPoolExecutor
        right = big_step()
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: big_step(), range(8)):
                self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, right)))


if __name__ == "__main__":
    unittest.main()
