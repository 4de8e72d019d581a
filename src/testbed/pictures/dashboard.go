package pictures

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-analyze/charts"
)

// Query asks a path below /api/v1 of Prometheus, and decodes the field data of the answer.
type Query func(ctx context.Context, path string, data any) error

// Sizes in pixels: Grafana's grid has 24 columns, and a row of 30 pixels.
const (
	gridColumn = 60
	gridRow    = 34
	gridGap    = 8
	tableRow   = 20
	titleRoom  = 30
)

// points is how many values a line has.
const points = 120

// panel is what is drawn of a panel, as Grafana's JSON has it.
type panel struct {
	Type        string
	Title       string
	Position    struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
}

// series is one series of an answer of Prometheus: Value of an instant, Values of a range.
type series struct {
	Metric map[string]string
	Value  sample
	Values []sample
}

// sample is a time in seconds and a value in quotes.
type sample [2]any

func (s sample) time() float64 {
	seconds, _ := s[0].(float64)
	return seconds
}

func (s sample) value() float64 {
	text, _ := s[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return value
}

// Dashboard draws a dashboard of Grafana with what a Prometheus has of a time, as SVG: its rows, stats, lines and
// tables, where Grafana puts them, in colors and fonts of our own. A panel without data says so.
func Dashboard(ctx context.Context, content []byte, query Query, from, to time.Time) ([]byte, error) {
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(content, &dashboard); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	if len(dashboard.Panels) == 0 {
		return nil, errors.New("dashboard: it has no panels")
	}
	rows := 0
	for _, p := range dashboard.Panels {
		rows = max(rows, p.Position.Y+p.Position.H)
	}
	painter := charts.NewPainter(charts.PainterOptions{
		OutputFormat: charts.ChartOutputSVG, Width: 24 * gridColumn, Height: rows * gridRow,
	}, charts.PainterThemeOption(charts.GetTheme(charts.ThemeLight)))
	painter.FilledRect(0, 0, painter.Width(), painter.Height(), charts.ColorWhite, charts.ColorWhite, 0)
	for _, p := range dashboard.Panels {
		answers, err := p.ask(ctx, query, from, to)
		if err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		if err := p.draw(painter, answers, from, to); err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
	}
	return painter.Bytes()
}

// named is a series with the text of its legend.
type named struct {
	series

	name string
}

// Fill puts values in place of the variables of an expression: the pictures show minutes, and whatever Prometheus has.
func Fill(expression string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$cluster", ".*").Replace(expression)
}

// ask asks for the series of all expressions: those of an instant, unless the panel shows lines.
func (p panel) ask(ctx context.Context, query Query, from, to time.Time) (list []named, err error) {
	for _, target := range p.Targets {
		values := url.Values{"query": {Fill(target.Expr)}}
		path := "query"
		if p.Type == "timeseries" {
			path = "query_range"
			values.Set("start", strconv.FormatInt(from.Unix(), 10))
			values.Set("end", strconv.FormatInt(to.Unix(), 10))
			values.Set("step", strconv.FormatFloat(to.Sub(from).Seconds()/points, 'f', 3, 64))
		} else {
			values.Set("time", strconv.FormatInt(to.Unix(), 10))
		}
		var data struct{ Result []series }
		if err := query(ctx, path+"?"+values.Encode(), &data); err != nil {
			return nil, err
		}
		for _, s := range data.Result {
			list = append(list, named{s, legend(target.LegendFormat, s.Metric)})
		}
	}
	slices.SortStableFunc(list, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

var labelInLegend = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// legend fills in the labels of a series; without a format it is all of them.
func legend(format string, labels map[string]string) string {
	if format == "" {
		var list []string
		for name, value := range labels {
			if name != "__name__" {
				list = append(list, name+"="+value)
			}
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	return labelInLegend.ReplaceAllStringFunc(format, func(text string) string {
		return labels[labelInLegend.FindStringSubmatch(text)[1]]
	})
}

func (p panel) draw(painter *charts.Painter, answers []named, from, to time.Time) error {
	box := charts.NewBox(
		p.Position.X*gridColumn+gridGap, p.Position.Y*gridRow+gridGap,
		(p.Position.X+p.Position.W)*gridColumn-gridGap, (p.Position.Y+p.Position.H)*gridRow-gridGap,
	)
	child := painter.Child(charts.PainterBoxOption(box))
	ink := charts.ColorRGB(40, 44, 52)
	if p.Type == "row" {
		child.Text(p.Title, 0, gridRow/2, 0, charts.FontStyle{FontSize: 16, FontColor: ink})
		return nil
	}
	faint := charts.ColorRGB(215, 218, 224)
	child.FilledRect(0, 0, child.Width(), child.Height(), charts.ColorWhite, faint, 1)
	child.Text(p.Title, gridGap, 20, 0, charts.FontStyle{FontSize: 12, FontColor: ink})
	if len(answers) == 0 {
		gray := charts.ColorRGB(140, 147, 160)
		child.Text("no data", gridGap, child.Height()/2+8, 0, charts.FontStyle{FontSize: 14, FontColor: gray})
		return nil
	}
	switch p.Type {
	case "stat":
		value := inUnit(answers[0].Value.value(), p.FieldConfig.Defaults.Unit)
		child.Text(value, gridGap, child.Height()-20, 0, charts.FontStyle{FontSize: 30, FontColor: ink})
		return nil
	case "table":
		for i, a := range answers {
			y := titleRoom + (i+1)*tableRow
			if y > child.Height() {
				break
			}
			style := charts.FontStyle{FontSize: 10, FontColor: ink}
			value := inUnit(a.Value.value(), p.FieldConfig.Defaults.Unit)
			child.Text(value, gridGap, y, 0, style)
			child.Text(a.name, 90, y, 0, style)
		}
		return nil
	case "timeseries":
		box.Top += titleRoom
		return painter.Child(charts.PainterBoxOption(box)).LineChart(p.lines(answers, from, to))
	}
	return fmt.Errorf("its type %q is not drawn; known are row, stat, table and timeseries", p.Type)
}

// lines has a value for each step of the time, or a gap.
func (p panel) lines(answers []named, from, to time.Time) charts.LineChartOption {
	step := to.Sub(from).Seconds() / points
	var values [][]float64
	var names []string
	for _, a := range answers {
		line := slices.Repeat([]float64{charts.GetNullValue()}, points+1)
		for _, s := range a.Values {
			i := int(math.Round((s.time() - float64(from.Unix())) / step))
			if v := s.value(); i >= 0 && i < len(line) && !math.IsNaN(v) && !math.IsInf(v, 0) {
				line[i] = v
			}
		}
		values, names = append(values, line), append(names, a.name)
	}
	option := charts.NewLineChartOptionWithData(values)
	option.Padding = charts.NewBoxEqual(gridGap)
	option.Symbol = charts.Symbol{Shape: charts.SymbolNone}
	option.LineStrokeWidth = 1.5
	option.Legend.SeriesNames = names
	option.Legend.FontStyle.FontSize = 8
	option.Legend.Symbol = charts.SymbolSquare
	option.XAxis.LabelCount, option.XAxis.BoundaryGap = 4, charts.Ptr(false)
	option.XAxis.Labels = make([]string, points+1)
	for i := range option.XAxis.Labels {
		at := from.Add(time.Duration(float64(i) * step * float64(time.Second)))
		option.XAxis.Labels[i] = at.UTC().Format("15:04")
	}
	zero := 0.0
	option.YAxis[0].Min, option.YAxis[0].LabelCount = &zero, 5
	option.ValueFormatter = func(v float64) string { return inUnit(v, p.FieldConfig.Defaults.Unit) }
	return option
}

// inUnit shows a value in one of Grafana's units.
func inUnit(value float64, unit string) string {
	scaled := func(steps []float64, names []string) string {
		for i := len(steps) - 1; i > 0; i-- {
			if math.Abs(value) >= steps[i] {
				return strconv.FormatFloat(value/steps[i], 'f', 1, 64) + " " + names[i]
			}
		}
		return strconv.FormatFloat(value, 'g', 3, 64) + " " + names[0]
	}
	switch unit {
	case "s":
		if value != 0 && math.Abs(value) < 1 {
			return strconv.FormatFloat(value*1000, 'f', 1, 64) + " ms"
		}
		return scaled([]float64{1, 60, 3600, 86400}, []string{"s", "min", "h", "d"})
	case "bytes":
		return scaled([]float64{1, 1 << 10, 1 << 20, 1 << 30}, []string{"B", "KiB", "MiB", "GiB"})
	case "cpm":
		return strconv.FormatFloat(value, 'f', 1, 64) + "/min"
	}
	return strconv.FormatFloat(value, 'g', 4, 64)
}
