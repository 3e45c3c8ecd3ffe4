// What most unit tests include from elsewhere, parsed once per layer. Each test still includes what it
// uses: -Db_pch=false builds too.
#include <doctest/doctest.h>
#include <flatshard/flatshard.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>
