// The disk that the crash enumeration believes in.
#include "model_disk.hpp"

#include <flatshard/io/folder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>

#include "random.hpp"

using namespace flatshard;
using flatshard_test::Fate;
using flatshard_test::ModelDisk;

namespace {

std::string text_of(const Folder& folder, const std::string& name) {
  const File file = folder.open_for_reading(name);
  std::string text(static_cast<std::size_t>(file.size()), '?');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write(File& file, Bytes offset, const std::string& text) {
  file.write(offset, std::as_bytes(std::span(text)));
}

std::unique_ptr<ModelDisk> crashed(const ModelDisk& disk, Fate fate) {
  auto random = flatshard_test::generator();
  return disk.after_crash([fate](std::size_t) { return fate; }, random);
}

bool has(ModelDisk& disk, const std::string& name) {
  return Folder::open("/", disk).status(name).has_value();
}

}  // namespace

TEST_CASE("what is synchronized survives, with its entry; the rest may or may not") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  write(file, 0, "hello");
  CHECK(disk.pending() == 2);
  CHECK_FALSE(has(*crashed(disk, Fate::Dropped), "a"));
  file.synchronize();
  CHECK_FALSE(has(*crashed(disk, Fate::Dropped), "a"));  // its entry is not durable
  root.synchronize();
  CHECK(disk.pending() == 0);
  write(file, 5, " world");
  CHECK(text_of(root, "a") == "hello world");
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Dropped)), "a") == "hello");
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Kept)), "a") == "hello world");
}

TEST_CASE("past the cache, too, nothing is durable before a synchronize, and blocks are whole") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  file.allocate(10000);
  file.synchronize();
  root.synchronize();
  std::optional<File> past_cache = file.reopen_past_cache();
  REQUIRE(past_cache);
  alignas(4096) static std::byte bytes[4096 + 1];
  std::fill(std::begin(bytes), std::end(bytes), std::byte{'x'});
  const std::span<const std::byte> all(bytes);
  for (const auto& [offset, data] :
       {std::pair(Bytes{1}, all.first(4096)), std::pair(Bytes{4096}, all.subspan(1)),
        std::pair(Bytes{4096}, all.first(4095))})
    CHECK_THROWS_AS(past_cache->write(offset, data), IoError);
  past_cache->write(4096, all.first(4096));
  CHECK(text_of(root, "a").substr(4096, 4096) == std::string(4096, 'x'));
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Dropped)), "a") == std::string(10000, 0));
  file.synchronize();
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Dropped)), "a") == text_of(root, "a"));
}

TEST_CASE("an entry without its bytes is an empty file") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  write(file, 0, "hello");
  root.synchronize();
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Dropped)), "a") == "");
}

TEST_CASE("after a failed fsync a later one does not save what was lost") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  root.synchronize();
  write(file, 0, "lost");
  disk.lose_changes_of(file.descriptor());
  write(file, 4, "kept");
  CHECK(disk.fsync(file.descriptor()) == 0);
  CHECK(text_of(root, "a") == "lostkept");
  CHECK(text_of(Folder::open("/", *crashed(disk, Fate::Dropped)), "a") ==
        std::string("\0\0\0\0kept", 8));
}

TEST_CASE("writes tear at sectors of 512 bytes") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  file.resize(1536);
  file.synchronize();
  root.synchronize();
  write(file, 0, std::string(1536, 'x'));
  auto random = flatshard_test::generator();
  std::set<std::string> seen;
  for (int round = 0; round < 300; ++round) {
    const auto after = disk.after_crash([](std::size_t) { return Fate::Torn; }, random);
    const std::string text = text_of(Folder::open("/", *after), "a");
    REQUIRE(text.size() == 1536);
    std::string sectors;
    for (std::size_t k = 0; k < 3; ++k) {
      const std::string sector = text.substr(512 * k, 512);
      CHECK(sector == std::string(512, sector[0]));
      sectors += sector[0];
    }
    seen.insert(sectors);
  }
  CHECK(seen.size() == 8);
}

TEST_CASE("renames are one change; a folder replaces only an empty one") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  root.create_folder("a").create("x").close();
  root.create_folder("b").create("y").close();
  root.open_folder("a").synchronize(), root.open_folder("b").synchronize(), root.synchronize();
  CHECK_THROWS_AS(root.rename("a", "b", Existing::Refuse), IoError);
  CHECK_THROWS_AS(root.rename("a", "b", Existing::Replace), IoError);
  root.rename("a", "b", Existing::Exchange);
  CHECK(disk.pending() == 1);
  for (const Fate fate : {Fate::Kept, Fate::Dropped}) {
    const auto after = crashed(disk, fate);
    const Folder now = Folder::open("/", *after);
    CHECK(now.open_folder("a").status("x").has_value() == (fate == Fate::Dropped));
    CHECK(now.open_folder("b").status("x").has_value() == (fate == Fate::Kept));
  }
  root.rename("a", "c", Existing::Refuse);
  CHECK_FALSE(has(disk, "a"));
  CHECK_THROWS_AS(root.remove_file("c"), IoError);
  root.remove_tree("c");
  CHECK_FALSE(has(disk, "c"));
}

TEST_CASE("a dead process changes nothing") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File file = root.create("a");
  disk.die();
  CHECK_THROWS_AS(write(file, 0, "x"), IoError);
  CHECK_THROWS_AS(root.create("b"), IoError);
  CHECK_THROWS_AS(file.synchronize(), IoError);
  CHECK(disk.pending() == 1);
}

TEST_CASE("locks, folders and missing names behave as on a real one") {
  ModelDisk disk;
  const Folder root = Folder::open("/", disk);
  File a = root.create("a");
  File again = root.open_for_writing("a");
  CHECK(a.try_lock());
  CHECK_FALSE(again.try_lock());
  a.close();
  CHECK(again.try_lock());
  CHECK_THROWS_AS(root.create("a"), IoError);
  CHECK_THROWS_AS(root.open_folder("a"), IoError);
  CHECK_THROWS_AS(Folder::open("/none/x", disk), IoError);
  CHECK(Folder::open_or_create("/f", disk).list().empty());
  CHECK(File::open_for_reading("/a", disk).size() == 0);
  CHECK_THROWS_AS(File::open_for_reading("/f", disk), IoError);
}
