// SPDX-License-Identifier: Apache-2.0
#include "transfer/column.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace orbite::transfer {
namespace {

using Values = std::vector<std::uint64_t>;

/// Behind a word that is another's: a column may begin anywhere.
Values words_of(const Values& values) {
  ColumnWriter writer;
  for (const std::uint64_t value : values) {
    writer.push(value);
  }
  Values words{77};
  const std::size_t said = writer.words();
  writer.append_to(words);
  EXPECT_EQ(words.size(), 1 + said);
  EXPECT_EQ(words[0], 77U);
  words.erase(words.begin());
  return words;
}

Values read(const Values& words, std::size_t count) {
  Values values;
  ColumnReader reader(words.data());
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(reader.next());
  }
  return values;
}

Values run(std::uint64_t first, std::uint64_t step, std::size_t count) {
  Values values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(first + i * step);
  }
  return values;
}

Values operator+(Values front, const Values& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

TEST(Column, OfOneRunIsThreeWords) {
  for (const std::uint64_t step : {0, 1, 4096, -16}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, UINT64_MAX}) {
      const Values values = run(first, step, 100'000);
      const Values words = words_of(values);
      EXPECT_EQ(words.size(), 3U) << step << " from " << first;
      EXPECT_EQ(read(words, values.size()), values);
    }
  }
}

TEST(Column, OfValuesWithoutARunIsAWordForEach) {
  Values values;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    values.push_back(i * i);
  }
  EXPECT_EQ(words_of(values).size(), 1001U);
  EXPECT_EQ(read(words_of(values), values.size()), values);
}

TEST(Column, OfNothingIsNothing) { EXPECT_TRUE(words_of({}).empty()); }

TEST(Column, KeepsRunsAmongOtherValues) {
  const Values values = Values{9, 3} + run(100, 10, 50) + Values{7} + run(5, 0, 60) + Values{1, 4};
  const Values words = words_of(values);
  // Two lists in front, of two and of one value, a run behind each, and a list of two.
  EXPECT_EQ(words.size(), 3U + 3U + 2U + 3U + 3U);
  EXPECT_EQ(read(words, values.size()), values);
}

TEST(Column, BeginsARunWithTheLastValueThatFitsNoOther) {
  // 1 and 100 look like the beginning of a run before 110 comes.
  const Values values = Values{1} + run(100, 10, 50);
  EXPECT_EQ(words_of(values).size(), 2U + 3U);
  EXPECT_EQ(read(words_of(values), values.size()), values);
}

RC_GTEST_PROP(ColumnProperty, GivesWhatWasPushedInNoMoreWordsThanThat, ()) {
  Values values;
  const auto segments = *rc::gen::inRange(0, 12);
  for (int i = 0; i < segments; ++i) {
    const auto first = *rc::gen::arbitrary<std::uint64_t>();
    const auto step = *rc::gen::element<std::uint64_t>(0, 1, 64, -64, 1 << 20);
    values = values + run(first, step, *rc::gen::inRange<std::size_t>(1, 9));
  }
  const Values words = words_of(values);
  RC_ASSERT(words.size() <= values.size() + 1);
  RC_ASSERT(read(words, values.size()) == values);
}

RC_GTEST_PROP(ColumnProperty, GivesWhatWasPushedOfFewNumbers,
              (const std::vector<std::uint8_t>& choices)) {
  Values values;
  for (const std::uint8_t choice : choices) {
    values.push_back(choice % 3);
  }
  const Values words = words_of(values);
  RC_ASSERT(words.size() <= values.size() + 1);
  RC_ASSERT(read(words, values.size()) == values);
}

}  // namespace
}  // namespace orbite::transfer
