// Reads of one /statusz.json: {metrics: {family: [sample, ...]}}, where a
// sample has labels and a value, or sum, count and cumulative buckets.

// The samples of `family` whose labels hold all of `labels`.
export function samples(status, family, labels = {}) {
  return (status.metrics[family] ?? []).filter((sample) =>
    Object.entries(labels).every(([k, v]) => sample.labels[k] === v));
}

// Undefined if there is none.
export function sample(status, family, labels = {}) {
  return samples(status, family, labels)[0];
}

export function value(status, family, labels = {}) {
  return sample(status, family, labels)?.value;
}

// Growth per second of a counter between two answers.
export function rate(before, now, family, labels = {}) {
  const seconds = now.time_seconds - before.time_seconds;
  const grown = value(now, family, labels) - value(before, family, labels);
  return seconds > 0 && grown >= 0 ? grown / seconds : 0;
}

// What a histogram saw between two answers: {sum, count, buckets} where
// buckets are [upper bound, count in this bucket].
export function between(before, now) {
  let last = 0;
  const buckets = now.buckets.map(([bound, cumulative], i) => {
    const sum = cumulative - (before ? before.buckets[i][1] : 0);
    const own = sum - last;
    last = sum;
    return [bound === "+Inf" ? Infinity : bound, own];
  });
  return {
    sum: now.sum - (before ? before.sum : 0),
    count: now.count - (before ? before.count : 0),
    buckets,
  };
}

// An upper bound of quantile `q`: the border of its bucket. NaN if empty.
export function quantile(histogram, q) {
  let left = q * histogram.count;
  if (!(histogram.count > 0)) return NaN;
  for (const [bound, count] of histogram.buckets) {
    left -= count;
    if (left <= 0) return bound;
  }
  return Infinity;
}
