// Shades of weights.
let ramp = [];
let alarm = [0, 0, 0];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function readColours() {
  const stops = Array.from({ length: 9 }, (_, n) => rgb(style(`--h${n}`)));
  ramp = Array.from({ length: 256 }, (_, n) => {
    const at = Math.min(7.999, (n / 255) * 8);
    const [low, high] = [stops[Math.floor(at)], stops[Math.floor(at) + 1]];
    return low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1)));
  });
  alarm = rgb(style("--alarm"));
}
const css = (colour) => `rgb(${colour.join(" ")})`;
function paint(canvas, high, wide, code, most) {
  canvas.width = wide;
  canvas.height = high;
  const context = canvas.getContext("2d");
  const image = context.createImageData(wide, high);
  for (let row = 0; row < high; row += 1) {
    for (let column = 0; column < wide; column += 1) {
      const c = code(row, column);
      const colour = c === NAN ? alarm : ramp[Math.min(255, Math.round((c / most) * 255))];
      const at = (row * wide + column) * 4;
      image.data.set(colour, at);
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}
