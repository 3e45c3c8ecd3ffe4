// What most sources of the library include from elsewhere, parsed once per build. Each source still
// includes what it uses: -Db_pch=false builds too (tests/run.sh full tries it).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
