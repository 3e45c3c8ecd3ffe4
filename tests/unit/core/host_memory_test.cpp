#include <flatshard/core/error.hpp>
#include <flatshard/core/host_memory.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

using namespace flatshard;

TEST_CASE("host memory is aligned and counts exactly the bytes asked for") {
  for (bool huge_pages : {false, true}) {
    HostMemory memory(huge_pages);
    const std::vector<Bytes> sizes = {
        0, 1, 4095, 4097, HostMemory::huge_page_threshold - 1, HostMemory::huge_page_threshold + 3};
    std::vector<void*> blocks;
    Bytes total = 0;
    for (Bytes bytes : sizes) {
      blocks.push_back(memory.allocate(bytes));
      total += bytes;
      CHECK(blocks.back() != nullptr);
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % HostMemory::alignment == 0);
      std::memset(blocks.back(), 0x5a, static_cast<std::size_t>(bytes));
      CHECK(memory.allocated() == total);
    }
    CHECK(memory.allocations() == static_cast<std::int64_t>(sizes.size()));
    for (std::size_t i = 0; i < sizes.size(); ++i) memory.deallocate(blocks[i], sizes[i]);
    CHECK(memory.allocated() == 0);
    CHECK(memory.high_water() == total);
  }
}

TEST_CASE("the high-water mark is the most in use at once, not the sum of all blocks") {
  HostMemory memory;
  for (int i = 0; i < 3; ++i) Buffer(memory, 1000);
  { Buffer first(memory, 700), second(memory, 800); }
  CHECK(memory.high_water() == 1500);
  CHECK(memory.allocations() == 5);
}

TEST_CASE("memory that cannot be had is an error that names the bytes") {
  HostMemory memory;
  const Bytes too_many = Bytes{1} << 61;
  CHECK_THROWS_WITH_AS(memory.allocate(too_many),
                       doctest::Contains(std::to_string(too_many).c_str()), MemoryError);
  CHECK_THROWS_AS(memory.allocate(-1), MemoryError);
  CHECK(memory.allocated() == 0);
  CHECK(memory.allocations() == 0);
}

TEST_CASE("several threads count together") {
  HostMemory memory;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) Buffer(memory, n);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(memory.allocated() == 0);
  CHECK(memory.allocations() == 800);
  CHECK(memory.high_water() >= 199);
  CHECK(memory.high_water() <= 4 * 199);
}
