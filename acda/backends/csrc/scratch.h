// Memory that a call needs for itself, aligned to cache lines.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

// Tests fill scratch memory with NaN, to show that nothing is read before it is written.
inline std::atomic<bool> poison{false};

// Blocks that were returned, for the next call: fresh memory from the system costs a page fault every 4 KB, which can be a
// third of a training step. What is kept is bounded; sanitizers see every block come and go.
class Pool {
  struct Block {
    void* memory;
    size_t bytes;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr size_t kMost = 0;
#else
  static constexpr size_t kMost = 64 << 20;  // bytes, in all
#endif
  static constexpr size_t kLeast = 16 << 10;  // smaller blocks are quick to get
  static constexpr size_t kBlocks = 256;      // at most; reserved, so that returning one allocates nothing
  std::mutex lock;
  std::vector<Block> blocks;
  size_t kept = 0;

 public:
  Pool() { blocks.reserve(kBlocks); }

  // Never destroyed: threads may outlive the objects of a file.
  static Pool& shared() {
    static Pool* pool = new Pool;
    return *pool;
  }

  // A block of at least `bytes`, which becomes its real size.
  void* take(size_t& bytes) {
    if (bytes >= kLeast && kMost) {
      const std::lock_guard<std::mutex> guard(lock);
      auto best = blocks.end();
      for (auto block = blocks.begin(); block != blocks.end(); ++block)
        if (block->bytes >= bytes && block->bytes <= 2 * bytes && (best == blocks.end() || block->bytes < best->bytes))
          best = block;
      if (best != blocks.end()) {
        const Block found = *best;
        blocks.erase(best);
        kept -= found.bytes;
        bytes = found.bytes;
        return found.memory;
      }
    }
    void* memory = std::aligned_alloc(64, bytes);
    if (!memory) throw std::bad_alloc();
    return memory;
  }

  void give(void* memory, size_t bytes) {
    if (bytes >= kLeast && bytes <= kMost) {
      const std::lock_guard<std::mutex> guard(lock);
      // The oldest go first: they are of a size that nobody asked for lately.
      while (kept + bytes > kMost || blocks.size() == kBlocks) {
        kept -= blocks.front().bytes;
        std::free(blocks.front().memory);
        blocks.erase(blocks.begin());
      }
      blocks.push_back({memory, bytes});
      kept += bytes;
      return;
    }
    std::free(memory);
  }
};

template <class T>
class Scratch {
  T* memory = nullptr;
  size_t bytes = 0;

 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept : memory(std::exchange(other.memory, nullptr)), bytes(other.bytes) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() { release(); }

  void resize(int64_t count, bool zero) {
    release();
    bytes = (std::max<int64_t>(count, 1) * sizeof(T) + 63) / 64 * 64;
    memory = static_cast<T*>(Pool::shared().take(bytes));
    if (zero) std::fill_n(memory, count, T(0));
    else if (poison) std::fill_n(memory, count, std::numeric_limits<T>::quiet_NaN());
  }
  T* data() const { return memory; }
  T& operator[](int64_t i) const { return memory[i]; }

 private:
  void release() {
    if (memory) Pool::shared().give(std::exchange(memory, nullptr), bytes);
  }
};
