package pictures

import (
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hinshun/vt10x"
)

// Sizes in pixels. A cell is as wide as a character of the usual monospace fonts of this size; each run of text is
// stretched to its cells, so that columns are aligned with any font.
const (
	fontSize   = 14
	cellWidth  = 8.4
	cellHeight = 19
	margin     = 16
	titleBar   = 34
)

// The picture has a background of its own, so that it can be read on light and dark pages.
const (
	background = "#1f2430"
	bar        = "#2b3140"
	foreground = "#d7dae0"
	faint      = "#8a93a6"
	fonts      = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"
)

// palette has the 16 ANSI colors, chosen for contrast on the background.
var palette = [16]string{
	"#10131a", "#f2777a", "#8fd694", "#f0c674", "#81a2f7", "#c792ea", "#7fdbda", foreground,
	faint, "#ff8f8f", "#a9e5ad", "#ffd580", "#9db8ff", "#d9a9ff", "#a0ece8", "#ffffff",
}

// Picture is a terminal window.
type Picture struct {
	// Title is in the window's bar, and what a screen reader says.
	Title string
	// Command is shown above the output, after a prompt; empty for none.
	Command string
	Columns int
	Lines   []Line
}

// SVG draws the picture.
func (p Picture) SVG() []byte {
	var body strings.Builder
	y := titleBar + margin + fontSize
	if p.Command != "" {
		text(&body, y, Run{Text: "$", Foreground: vt10x.Green})
		text(&body, y, Run{Text: p.Command, Column: 2, Foreground: vt10x.DefaultFG, Bold: true})
		y += cellHeight
	}
	for _, line := range p.Lines {
		for _, run := range line {
			text(&body, y, run)
		}
		y += cellHeight
	}
	width, height := float64(p.Columns)*cellWidth+2*margin, y-fontSize+margin
	var svg strings.Builder
	fmt.Fprintf(
		&svg,
		`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%.0f" height="%d" viewBox="0 0 %.0f %d">`+"\n",
		width,
		height,
		width,
		height,
	)
	fmt.Fprintf(
		&svg, "<title>%s</title>\n<style>text { white-space: pre }</style>\n", escape(p.Title),
	) // browsers; xml:space is for others
	fmt.Fprintf(
		&svg,
		`<rect width="100%%" height="100%%" rx="8" fill="%s"/><path d="M0 %d V8 a8 8 0 0 1 8-8 H%.0f a8 8 0 0 1 8 8 `+
			`V%d z" fill="%s"/>`+"\n",
		background,
		titleBar,
		width-8,
		titleBar,
		bar,
	)
	for n, fill := range []string{"#f2777a", "#f0c674", "#8fd694"} {
		fmt.Fprintf(&svg, `<circle cx="%d" cy="%d" r="6" fill="%s"/>`, 20+20*n, titleBar/2, fill)
	}
	fmt.Fprintf(
		&svg,
		"\n"+`<text x="50%%" y="%d" text-anchor="middle" font-family="system-ui,sans-serif" font-size="13" `+
			`fill="%s">%s</text>`+"\n",
		titleBar/2+5,
		faint,
		escape(p.Title),
	)
	fmt.Fprintf(
		&svg,
		`<g font-family="%s" font-size="%d" fill="%s" xml:space="preserve">`+"\n%s</g>\n</svg>\n",
		fonts,
		fontSize,
		foreground,
		body.String(),
	)
	return []byte(svg.String())
}

// text writes a run at a baseline.
func text(out *strings.Builder, y int, run Run) {
	x, width := margin+float64(run.Column)*cellWidth, float64(utf8.RuneCountInString(run.Text))*cellWidth
	if run.Background != vt10x.DefaultBG && run.Background != 0 {
		fmt.Fprintf(
			out,
			`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`,
			x,
			y-fontSize,
			width,
			cellHeight,
			color(run.Background, background),
		)
	}
	content := strings.TrimLeft(run.Text, " ")
	blanks := utf8.RuneCountInString(run.Text) - utf8.RuneCountInString(content)
	if content == "" {
		return
	}
	x += float64(blanks) * cellWidth
	width -= float64(blanks) * cellWidth
	style := ""
	if fill := color(run.Foreground, foreground); fill != foreground {
		style += fmt.Sprintf(` fill="%s"`, fill)
	}
	if run.Bold {
		style += ` font-weight="bold"`
	}
	fmt.Fprintf(out, `<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n", x, y, width, style, escape(content))
}

// color gives the SVG color of a terminal's color: the palette's, one of xterm's 256, 24 bits, or the default.
func color(c vt10x.Color, standard string) string {
	switch {
	case c == vt10x.DefaultFG:
		return foreground
	case c == vt10x.DefaultBG:
		return background
	case c < 16:
		return palette[c]
	case c < 232:
		level := func(n vt10x.Color) vt10x.Color {
			if n == 0 {
				return 0
			}
			return 55 + 40*n
		}
		n := c - 16
		return fmt.Sprintf("#%02x%02x%02x", level(n/36), level(n/6%6), level(n%6))
	case c < 256:
		gray := 8 + 10*(c-232)
		return fmt.Sprintf("#%02x%02x%02x", gray, gray, gray)
	case c < 1<<24:
		return fmt.Sprintf("#%06x", uint32(c))
	default:
		return standard
	}
}

func escape(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder never fails
	return out.String()
}
