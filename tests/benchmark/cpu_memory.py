"""Where a CPU benchmark's tensors lie, and how fast that memory is read."""

import glob
import mmap
import pathlib

HUGE_PAGE = 1 << 21


def last_cache_bytes():
    """Of the largest cache that the first CPU sees; 0 where the system does
    not say."""
    sizes = [0]
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        text = pathlib.Path(path).read_text(encoding="ascii").strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes)


def huge_pages():
    """What the system makes of advice to use them: "always", "madvise" or
    "never"."""
    path = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return "never"
    text = path.read_text(encoding="ascii")
    return text[text.index("[") + 1 : text.index("]")]


def empty(torch, shape, dtype, huge):
    """A contiguous tensor in pages of its own, of zeros. With `huge` in huge
    pages, where the system has them, as the server's host pool asks for."""
    size = torch.Size(shape).numel() * dtype.itemsize
    pages = mmap.mmap(-1, size + HUGE_PAGE,
                      flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge:
        pages.madvise(mmap.MADV_HUGEPAGE)
    data = torch.frombuffer(pages, dtype=torch.uint8)
    first = -data.data_ptr() % HUGE_PAGE
    return data[first : first + size].view(dtype).view(shape)


def memory(torch, huge):
    """A tensor that lies in memory, not in caches: at least 1 GiB and four
    times the last cache, STREAM's rule."""
    floats = max(1 << 30, 4 * last_cache_bytes()) // 4
    data = empty(torch, (floats,), torch.float32, huge)
    data.fill_(1)
    return data
