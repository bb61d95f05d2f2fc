// Canvases and overlays: outlines of sounds, plots of arrays, boxes and points over pictures.

import { svg } from "./dom.js";

function prepared(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 200;
  const height = canvas.clientHeight || 100;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.clearRect(0, 0, width, height);
  const { color, outlineColor, caretColor } = getComputedStyle(canvas); // what the theme's colours come to
  return { context, width, height, wave: color, accent: outlineColor, line: caretColor };
}

export function drawPeaks(canvas, told, played = 0) {
  const { context, width, height, wave, accent } = prepared(canvas);
  const { low, high } = told;
  const middle = height / 2;
  const step = width / low.length;
  const gap = step > 3 ? 1 : 0;
  for (let i = 0; i < low.length; i++) {
    const top = middle - (high[i] / 100) * middle * 0.95;
    const bottom = middle - (low[i] / 100) * middle * 0.95;
    context.fillStyle = (i + 0.5) / low.length < played ? accent : wave;
    context.fillRect(i * step, Math.min(top, middle - 0.5), Math.max(step - gap, 0.6), Math.max(bottom - top, 1));
  }
}

const STOPS = [
  [68, 1, 84], [71, 45, 123], [59, 82, 139], [44, 114, 142], [33, 145, 140], [40, 174, 128], [94, 201, 98],
  [173, 220, 48], [253, 231, 37],
];
const COLOURS = Uint8Array.from({ length: 256 * 3 }, (_, at) => {
  const place = (Math.floor(at / 3) / 255) * (STOPS.length - 1);
  const first = Math.min(Math.floor(place), STOPS.length - 2);
  const channel = at % 3;
  return STOPS[first][channel] + (place - first) * (STOPS[first + 1][channel] - STOPS[first][channel]);
});

export function drawPlot(canvas, told) {
  const { context, width, height, wave, line } = prepared(canvas);
  if (told.form === "map") return drawMap(context, width, height, told);
  if (told.form === "none") return;
  const { low, high, min, max } = told;
  const bottom = Math.min(min, told.form === "bars" ? 0 : min);
  const top = Math.max(max, told.form === "bars" ? 0 : max);
  const span = top - bottom || 1;
  const y = (value) => height - 3 - ((value - bottom) / span) * (height - 6);
  if (bottom < 0 && top > 0) {
    context.fillStyle = line;
    context.fillRect(0, y(0), width, 1);
  }
  context.fillStyle = context.strokeStyle = wave;
  const step = width / low.length;
  if (told.form === "bars") {
    for (let i = 0; i < low.length; i++) {
      const at = y(high[i]);
      context.fillRect(i * step, Math.min(at, y(0)), Math.max(step - 1, 1), Math.max(Math.abs(at - y(0)), 1));
    }
    return;
  }
  context.lineWidth = 1.2;
  context.beginPath();
  for (let i = 0; i < low.length; i++) context.lineTo((i + 0.5) * step, y(high[i]));
  if (low.some((value, i) => value !== high[i])) {
    for (let i = low.length - 1; i >= 0; i--) context.lineTo((i + 0.5) * step, y(low[i]));
    context.closePath();
    context.fill();
  }
  context.stroke();
}

function drawMap(context, width, height, told) {
  const { rows, columns } = told;
  const data = Uint8Array.from(atob(told.data), (letter) => letter.charCodeAt(0));
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    image.data.set(COLOURS.subarray(data[i] * 3, data[i] * 3 + 3), i * 4);
    image.data[i * 4 + 3] = 255;
  }
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = columns > width || rows > height;
  context.drawImage(small, 0, 0, width, height);
}

export const hue = (number) => `hsl(${Math.round((number * 137.508) % 360)} 85% 58%)`;

// An SVG that lies over a picture of this size; "crop" as the picture is.
export function overlay(width, height, layers, crop, names = []) {
  const root = svg("svg", {
    class: "overlay", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true",
    preserveAspectRatio: crop ? "xMidYMid slice" : "xMidYMid meet",
  });
  for (const layer of layers) {
    const [across, down] = layer.normalized ? [width, height] : [1, 1];
    if (layer.kind === "boxes") {
      layer.boxes.forEach(([left, top, right, bottom], i) => {
        const box = {
          x: left * across, y: top * down, width: Math.max((right - left) * across, 0),
          height: Math.max((bottom - top) * down, 0), stroke: hue(i), class: "box",
        };
        root.append(svg("rect", box));
        if (names[i] !== undefined) {
          const size = Math.max(width, height) / 36;
          const text = svg("text", { x: box.x + size / 4, y: Math.max(box.y - size / 3, size), "font-size": size });
          text.setAttribute("fill", hue(i));
          text.textContent = String(names[i]);
          root.append(text);
        }
      });
    }
    if (layer.kind === "points") {
      const radius = Math.max(width, height) / 110;
      layer.points.forEach((thing, i) => {
        for (const [x, y, seen = 2] of thing) {
          if (seen === 0) continue;
          const fill = seen === 1 ? "none" : hue(i);
          root.append(svg("circle", { cx: x * across, cy: y * down, r: radius, stroke: hue(i), fill, class: "point" }));
        }
      });
    }
  }
  return root;
}
