"""A stream's state is a few kilobytes: saved, sent anywhere, and continued."""
import minrnn

model = minrnn.Model(vocab="bytes", mixer="minlstm", layers=2, dim=64, seed=1)
stream = model.stream()
stream.feed("everything that was said before")
state = stream.save()
print(f"{len(state)} bytes of state after {len('everything that was said before')} tokens")

elsewhere = model.stream()  # or in another process, on another machine
elsewhere.load(state)
same = (elsewhere.step(ord("!")) == stream.step(ord("!"))).all()
print("the same scores:", same)
what_if = stream.clone()  # two futures of one past
print("different futures:", (stream.step(ord("a")) != what_if.step(ord("b"))).any())
