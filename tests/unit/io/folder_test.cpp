#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/folder.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io_cases.hpp"
#include "scratch_folder.hpp"

using namespace flatshard;
using namespace io_cases;
using flatshard_test::ScratchFolder;

namespace flatshard::detail {
int open_beneath(int folder, const std::string& path, int flags, unsigned mode);
int open_by_components(int folder, const std::string& path, int flags, unsigned mode);
}  // namespace flatshard::detail

namespace {

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : folder.list()) names.push_back(entry.name);
  return names;
}

using Names = std::vector<std::string>;
using OpenBeneath = int (*)(int, const std::string&, int, unsigned);

/// The negative errno, or 0 when it opens.
int result_of(OpenBeneath open, int folder, const std::string& path, int flags = O_RDONLY) {
  const int file = open(folder, path, flags, 0600);
  if (file >= 0) ::close(file);
  return file < 0 ? file : 0;
}

}  // namespace

TEST_CASE("plain names") {
  for (const char* name : {"a", ".a", "...", "model-00001-of-00002.safetensors", "\xc3\xa4"})
    CHECK(is_plain_name(name));
  for (const char* name : {"", ".", "..", "a/b", "/a", "a\\b", "../a"})
    CHECK_FALSE(is_plain_name(name));
  CHECK_FALSE(is_plain_name(std::string("a\0b", 3)));
  CHECK(is_plain_name(std::string(255, 'x')));
  CHECK_FALSE(is_plain_name(std::string(256, 'x')));
}

TEST_CASE("every function refuses a name that is not plain") {
  const ScratchFolder scratch;
  const Folder folder = Folder::open(scratch.path());
  folder.create("a").close();
  const std::string bad = "../a";
  CHECK(code_of([&] { folder.open_for_reading(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.create(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.open_for_writing(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.open_or_create_file(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.open_folder(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.create_folder(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.status(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.rename("a", bad, Existing::Refuse); }) == EINVAL);
  CHECK(code_of([&] { folder.rename(bad, "a", Existing::Refuse); }) == EINVAL);
  CHECK(code_of([&] { folder.remove_file(bad); }) == EINVAL);
  CHECK(code_of([&] { folder.remove_tree(bad); }) == EINVAL);
}

TEST_CASE("no symbolic link is followed, whatever it points to") {
  const ScratchFolder scratch;
  const Folder folder = Folder::open(scratch.path() + "//");
  CHECK(folder.path() == scratch.path());
  folder.create("file").close();
  folder.create_folder("folder").create("inner").close();
  REQUIRE(::symlink("file", (scratch / "to-file").c_str()) == 0);
  REQUIRE(::symlink("folder", (scratch / "to-folder").c_str()) == 0);
  CHECK(code_of([&] { folder.open_for_reading("to-file"); }) == ELOOP);
  CHECK(code_of([&] { folder.open_for_writing("to-file"); }) == ELOOP);
  CHECK(code_of([&] { folder.open_or_create_file("to-file"); }) == ELOOP);
  CHECK(code_of([&] { folder.create("to-file"); }) == EEXIST);
  CHECK(code_of([&] { folder.open_folder("to-folder"); }) == ELOOP);
  CHECK(code_of([&] { folder.remove_tree("to-folder"); }) == ELOOP);
  CHECK(folder.status("to-file")->kind == FileKind::SymbolicLink);
  CHECK(folder.status("folder")->kind == FileKind::Folder);
  CHECK(folder.status("file")->kind == FileKind::Regular);
  CHECK_FALSE(folder.status("none"));
  CHECK(Folder::open(scratch / "to-folder").list().size() == 1);  // the caller's own path
}

TEST_CASE("the kernel and the walk over components open the same") {
  const ScratchFolder scratch;
  const Folder folder = Folder::open(scratch.path());
  folder.create_folder("d").create("f").close();
  folder.create("f").close();
  REQUIRE(::symlink("f", (scratch / "link").c_str()) == 0);
  REQUIRE(::symlink("d", (scratch / "d-link").c_str()) == 0);
  REQUIRE(::symlink("/etc/passwd", (scratch / "d" + "/out").c_str()) == 0);
  const std::pair<const char*, int> cases[] = {
      {"f", 0},
      {"d/f", 0},
      {"d//f", 0},
      {"./f", 0},
      {"..", -EXDEV},
      {"../x", -EXDEV},
      {"/f", -EXDEV},
      {"/etc/passwd", -EXDEV},
      {"link", -ELOOP},
      {"d-link/f", -ELOOP},
      {"d/out", -ELOOP},
      {"none", -ENOENT},
      {"none/f", -ENOENT},
      {"f/f", -ENOTDIR},
      {"", -ENOENT},
      {"d", 0},
  };
  for (const auto& each : cases) {
    const auto& [path, expected] = each;
    CAPTURE(each.first);
    CHECK(result_of(detail::open_by_components, folder.descriptor(), path) == expected);
    CHECK(result_of(detail::open_beneath, folder.descriptor(), path) == expected);
  }
  // Going down and up again ends inside; the walk is stricter than the kernel and refuses that too.
  CHECK(result_of(detail::open_by_components, folder.descriptor(), "d/../f") == -EXDEV);
  CHECK(result_of(detail::open_beneath, folder.descriptor(), "d/../../f") == -EXDEV);
  for (const OpenBeneath open : {detail::open_beneath, detail::open_by_components}) {
    constexpr int flags = O_CREAT | O_EXCL | O_RDWR;
    CHECK(result_of(open, folder.descriptor(), "d/new", flags) == 0);
    CHECK(result_of(open, folder.descriptor(), "d/new", flags) == -EEXIST);
    CHECK(result_of(open, folder.descriptor(), "link", flags) == -EEXIST);
    folder.open_folder("d").remove_file("new");
  }
  CHECK(detail::open_beneath(folder.descriptor(), std::string("f\0g", 3), O_RDONLY, 0) == -EINVAL);
}

TEST_CASE("entries are listed by name; renames replace, refuse or exchange") {
  const ScratchFolder scratch;
  const Folder folder = Folder::open(scratch.path());
  File a = folder.create("a");
  a.write(0, std::vector<std::byte>(1));
  folder.create("b").close();
  CHECK(names_in(folder) == Names{"a", "b"});
  CHECK(code_of([&] { folder.rename("a", "b", Existing::Refuse); }) == EEXIST);
  CHECK(code_of([&] { folder.rename("a", "c", Existing::Exchange); }) == ENOENT);
  folder.rename("a", "b", Existing::Exchange);
  CHECK(folder.status("a")->bytes == 0);
  CHECK(folder.status("b")->bytes == 1);
  folder.rename("b", "c", Existing::Refuse);
  CHECK(names_in(folder) == Names{"a", "c"});
  folder.rename("c", "a", Existing::Replace);
  CHECK(folder.status("a")->bytes == 1);
  CHECK(names_in(folder) == Names{"a"});
  CHECK(names_in(folder) == Names{"a"});  // a second list begins anew
}

TEST_CASE("a tree is removed, and nothing that its links point to") {
  const ScratchFolder scratch;
  const Folder folder = Folder::open(scratch.path());
  folder.create("precious").close();
  const Folder tree = folder.create_folder("tree");
  tree.create("x").close();
  tree.create_folder("empty");
  REQUIRE(::symlink("../precious", (scratch / "tree" + "/link").c_str()) == 0);
  REQUIRE(::symlink("..", (scratch / "tree" + "/up").c_str()) == 0);
  folder.remove_tree("tree");
  CHECK(names_in(folder) == Names{"precious"});
  folder.create_folder("deep").create_folder("deeper").create("x").close();
  CHECK(code_of([&] { folder.remove_tree("deep"); }) == ENOTEMPTY);
}

TEST_CASE("a folder is made once, for its owner, durably") {
  const ScratchFolder scratch;
  const std::string path = scratch / "new";
  CHECK(code_of([&] { Folder::open(path); }) == ENOENT);
  for (int round = 0; round < 2; ++round) CHECK(Folder::open_or_create(path + "/").path() == path);
  CHECK(code_of([&] { Folder::open_or_create(scratch / "no/parents"); }) == ENOENT);
  struct stat found = {};
  Folder::open(path).create_folder("own");
  REQUIRE(::stat((path + "/own").c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0700);
  CHECK(Folder::open(path).free_bytes() > 0);
  FaultyFileOperations faulty(posix_file_operations(), {.operation = 3});  // mkdir, open, fsync
  CHECK(code_of([&] { Folder::open_or_create(scratch / "other", faulty); }) == EIO);
  CHECK(faulty.faulty_operation() == "fsync");
}
