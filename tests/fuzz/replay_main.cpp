// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: each corpus file as it is, then a fixed number of seeded
// mutations of them. The same arguments give the same inputs on every machine.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kInputBytesMax = 64 * 1024;
constexpr std::uint64_t kMutationsMax = 100'000'000;

// SplitMix64: small, and the same everywhere, unlike the distributions of <random>.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t value = state_;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
  }

  // In [0, bound); bound must not be 0.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

std::uint8_t interesting_byte(Random& random) {
  constexpr std::uint8_t kValues[] = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF, '"', '\\', '{', '}',
                                      '[',  ']',  ':',  ',',  '-',  '0',  '9', ' ',  '\n'};
  return kValues[random.below(std::size(kValues))];
}

// Overwrites 2, 4 or 8 bytes with a boundary number, in either byte order: lengths and counts.
void overwrite_number(Bytes& input, Random& random) {
  constexpr std::uint64_t kValues[] = {0,           1,          0x7FFF,     0xFFFF,
                                       0x10000,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                       0x100000000, 1ULL << 63, ~0ULL,      ~0ULL - 7};
  const std::size_t width = std::size_t{2} << random.below(3);
  if (input.size() < width) {
    return;
  }
  const std::size_t position = random.below(input.size() - width + 1);
  const std::uint64_t value = kValues[random.below(std::size(kValues))];
  const bool big_endian = random.below(2) == 1;
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t shift = 8 * (big_endian ? width - 1 - i : i);
    input[position + i] = static_cast<std::uint8_t>(value >> shift);
  }
}

void insert_bytes(Bytes& input, Random& random) {
  const std::size_t count = 1 + random.below(random.below(8) == 0 ? 256 : 8);
  const auto position = static_cast<std::ptrdiff_t>(random.below(input.size() + 1));
  Bytes added(count);
  const bool repeat = random.below(2) == 0;
  const std::uint8_t first = interesting_byte(random);
  for (std::uint8_t& byte : added) {
    byte = repeat ? first : static_cast<std::uint8_t>(random.next());
  }
  input.insert(input.begin() + position, added.begin(), added.end());
}

void erase_bytes(Bytes& input, Random& random) {
  const std::size_t position = random.below(input.size());
  const std::size_t count = 1 + random.below(std::min<std::size_t>(input.size() - position, 64));
  const auto first = input.begin() + static_cast<std::ptrdiff_t>(position);
  input.erase(first, first + static_cast<std::ptrdiff_t>(count));
}

// Puts a piece of `other` somewhere into `input`.
void splice(Bytes& input, const Bytes& other, Random& random) {
  if (other.empty()) {
    return;
  }
  const std::size_t from = random.below(other.size());
  const std::size_t count = 1 + random.below(other.size() - from);
  const auto position = static_cast<std::ptrdiff_t>(random.below(input.size() + 1));
  const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
  input.insert(input.begin() + position, begin, begin + static_cast<std::ptrdiff_t>(count));
}

void mutate_once(Bytes& input, const std::vector<Bytes>& corpus, Random& random) {
  if (input.empty()) {
    insert_bytes(input, random);
    return;
  }
  switch (random.below(8)) {
    case 0:
      input[random.below(input.size())] ^= static_cast<std::uint8_t>(1U << random.below(8));
      break;
    case 1:
      input[random.below(input.size())] = static_cast<std::uint8_t>(random.next());
      break;
    case 2:
      input[random.below(input.size())] = interesting_byte(random);
      break;
    case 3:
      overwrite_number(input, random);
      break;
    case 4:
      insert_bytes(input, random);
      break;
    case 5:
      erase_bytes(input, random);
      break;
    case 6:
      input.resize(random.below(input.size() + 1));
      break;
    default:
      splice(input, corpus[random.below(corpus.size())], random);
      break;
  }
}

Bytes mutated(const std::vector<Bytes>& corpus, Random& random) {
  Bytes input = corpus[random.below(corpus.size())];
  const std::size_t steps = std::size_t{1} << random.below(4);
  for (std::size_t i = 0; i < steps; ++i) {
    mutate_once(input, corpus, random);
  }
  if (input.size() > kInputBytesMax) {
    input.resize(kInputBytesMax);
  }
  return input;
}

// A heap block of exactly the input's size, so that AddressSanitizer sees each read beyond it.
void run_one(const Bytes& input) {
  const Bytes exact(input.begin(), input.end());
  if (LLVMFuzzerTestOneInput(exact.data(), exact.size()) != 0) {
    std::fprintf(stderr, "the target returned a value other than 0\n");
    std::abort();
  }
}

// Sorted by name, so that the order does not depend on the file system.
bool load_corpus(const std::filesystem::path& directory, std::vector<Bytes>& corpus) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    std::fprintf(stderr, "no corpus directory %s\n", directory.c_str());
    return false;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return false;
    }
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "the corpus directory %s is empty\n", directory.c_str());
    return false;
  }
  return true;
}

bool parse_number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

struct Options {
  std::filesystem::path corpus;
  std::uint64_t mutations = 0;
  std::uint64_t seed = 0;
};

bool parse_options(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    if (name == "--corpus") {
      options.corpus = value;
    } else if (name == "--mutations") {
      if (!parse_number(value, options.mutations) || options.mutations > kMutationsMax) {
        return false;
      }
    } else if (name != "--seed" || !parse_number(value, options.seed)) {
      return false;
    }
  }
  return argc % 2 == 1 && !options.corpus.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse_options(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s --corpus DIRECTORY [--mutations COUNT] [--seed NUMBER]\n",
                 argv[0]);
    return 2;
  }
  std::vector<Bytes> corpus;
  if (!load_corpus(options.corpus, corpus)) {
    return 1;
  }
  run_one({});
  for (const Bytes& input : corpus) {
    run_one(input);
  }
  Random random(options.seed);
  for (std::uint64_t i = 0; i < options.mutations; ++i) {
    run_one(mutated(corpus, random));
  }
  std::printf("%zu corpus inputs and %llu mutations (seed %llu) passed\n", corpus.size(),
              static_cast<unsigned long long>(options.mutations),
              static_cast<unsigned long long>(options.seed));
  return 0;
}
