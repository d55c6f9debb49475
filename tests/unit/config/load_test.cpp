// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "orbite/config.hpp"

namespace orbite::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConfigLoad : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "orbite-config-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(std::string_view name, std::string_view content) {
    const std::filesystem::path path = directory_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::filesystem::path directory_;
};

TEST_F(ConfigLoad, ReadsAFile) {
  const Result<Config> config =
      load_config_file(write("good.json", R"({"tcp": {"bulk_lanes_per_peer": 7}})"));
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->tcp.bulk_lanes_per_peer, 7u);
}

TEST_F(ConfigLoad, NamesTheKeyAndTheFileOfARefusal) {
  const std::string path = write("bad.json", R"({"tcp": {"bulk_lanes_per_peer": 99}})");
  const Result<Config> config = load_config_file(path);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), ErrorCode::kBadConfig);
  EXPECT_EQ(config.error().context(),
            "tcp.bulk_lanes_per_peer: 99 is out of range, allowed 1..16 (in " + path + ")");
}

TEST_F(ConfigLoad, RefusesAnEmptyFile) {
  const Result<Config> config = load_config_file(write("empty.json", ""));
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(std::string(config.error().context()), StartsWith("line 1, column 1: not JSON"));
}

TEST_F(ConfigLoad, RefusesALargeFile) {
  std::string document = "{}";
  document.resize(kConfigBytesMax, ' ');
  EXPECT_TRUE(load_config_file(write("just.json", document)).has_value());
  document.resize(3 * kConfigBytesMax, ' ');
  const Result<Config> config = load_config_file(write("large.json", document));
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(std::string(config.error().context()), HasSubstr("allowed 1048576"));
}

TEST_F(ConfigLoad, NamesAMissingFile) {
  const std::string path = directory_ / "missing.json";
  const Result<Config> config = load_config_file(path);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), ErrorCode::kBadConfig);
  EXPECT_EQ(config.error().native_errno(), ENOENT);
  EXPECT_EQ(config.error().context(), "cannot read " + path);
}

TEST_F(ConfigLoad, NamesADirectoryInThePath) {
  const std::string path = write("file", "{}") + "/config.json";
  const Result<Config> config = load_config_file(path);
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().native_errno(), ENOTDIR);
}

TEST_F(ConfigLoad, RefusesWhatIsNotARegularFileWithoutWaiting) {
  const std::string fifo = directory_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, directory_.string(), std::string("/dev/zero")}) {
    const Result<Config> config = load_config_file(path);
    ASSERT_FALSE(config.has_value());
    EXPECT_EQ(config.error().context(), "cannot read " + path + ": not a regular file");
  }
}

}  // namespace
}  // namespace orbite::config
