// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace orbite::tool {
namespace {

constexpr int kBarColumns = 30;
constexpr std::chrono::milliseconds kRedraw{200};
constexpr std::chrono::seconds kLineEvery{10};

}  // namespace

Progress::Progress(std::string unit, std::uint64_t total)
    : unit_(std::move(unit)),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()),
      next_(start_ + (terminal_ ? std::chrono::nanoseconds(kRedraw) : kLineEvery)) {}

Progress::~Progress() {
  if (drawn_ && terminal_) {
    std::fputs("\r\033[K", stderr);
  }
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Progress::update(std::uint64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) {
    return;
  }
  next_ = now + (terminal_ ? std::chrono::nanoseconds(kRedraw) : kLineEvery);
  draw(done);
}

void Progress::draw(std::uint64_t done) {
  drawn_ = true;
  const double rate = static_cast<double>(done) / std::max(seconds(), 1e-3);
  const double left = rate > 0 ? static_cast<double>(total_ - std::min(done, total_)) / rate : 0;
  if (!terminal_) {
    std::fprintf(stderr, "%llu of %llu %s, %.0f a second, %.0f s left\n",
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_),
                 unit_.c_str(), rate, left);
    return;
  }
  const auto filled =
      static_cast<std::size_t>(total_ == 0 ? kBarColumns : kBarColumns * done / total_);
  std::string bar(std::min<std::size_t>(filled, kBarColumns), '#');
  bar.resize(kBarColumns, '.');
  std::fprintf(stderr, "\r\033[K[%s] %llu/%llu %s  %.0f/s  %.0f s left", bar.c_str(),
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(total_),
               unit_.c_str(), rate, left);
  std::fflush(stderr);
}

}  // namespace orbite::tool
