/** Numbers of the lines that the check refused. Add them in ascending order. */
export class RefusedLines {
  private numbers = new Uint32Array(64);
  private length = 0;

  add(number: number): void {
    if (this.length === this.numbers.length) {
      const grown = new Uint32Array(2 * this.length);
      grown.set(this.numbers);
      this.numbers = grown;
    }
    this.numbers[this.length++] = number;
  }

  has(number: number | undefined): boolean {
    if (number === undefined) return false;
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.numbers[middle] < number) low = middle + 1;
      else high = middle;
    }
    return low < this.length && this.numbers[low] === number;
  }
}
